"""verl's own judging of programs, unmodified. Its package needs torch; this part does not.

The arguments are the folder with verl and the URL. Standard input is a JSON list of arguments of
`check_correctness`, or of `compute_score` if they have a completion. All are judged at once, as a
trainer does. The verdicts are printed as a JSON list.
"""

import importlib.util
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(sys.argv[1], "verl", "utils", "reward_score", "sandbox_fusion")
SEMAPHORE = threading.Semaphore(64)  # the default of reward.sandbox_fusion.max_concurrent

spec = importlib.util.spec_from_file_location("sandbox_fusion", FOLDER / "__init__.py")
sandbox_fusion = sys.modules["sandbox_fusion"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sandbox_fusion)


def judge(request):
    """Return the score of a completion, or the verdicts of a program's cases."""
    if "completion" in request:
        return sandbox_fusion.compute_score(sys.argv[2], SEMAPHORE, 1024, **request)[0]
    arguments = {"concurrent_semaphore": SEMAPHORE, **request}
    verdicts, details = sandbox_fusion.check_correctness(sys.argv[2], **arguments)
    if -1 in verdicts:
        print([each["api_request_error"] for each in details], file=sys.stderr)
    return verdicts


requests = json.load(sys.stdin)
with ThreadPoolExecutor(len(requests)) as pool:
    print(json.dumps(list(pool.map(judge, requests))))
