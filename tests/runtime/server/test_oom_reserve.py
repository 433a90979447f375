"""Memory in reserve: held by processes that are ended first, and held again when they were."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from cellblock.runtime import bootstrap
from cellblock.runtime.linux import process_tree

CELLBLOCK = Path(bootstrap.__file__).resolve().parent.parent

RENEWED = """
import sys, types
package = types.ModuleType("cellblock")
package.__path__ = [sys.argv[1]]
sys.modules["cellblock"] = package
import os, select, signal, time
from cellblock.runtime.linux import process_tree
from cellblock.runtime.server.oom_reserve import Reserve

class Loop:
    handlers = {}
    def watch(self, descriptor, handler, flags=0):
        self.handlers[descriptor] = handler
    def forget(self, descriptor):
        del self.handlers[descriptor]

def held(pid):
    if open(f"/proc/{pid}/oom_score_adj").read() != "1000\\n":
        return 0
    files = [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
    return sum(os.stat(file).st_blocks * 512 for file in files if os.readlink(file).startswith("/memfd:"))

def holders():
    while sum(map(held, process_tree.children(os.getpid()))) < 4 << 20:
        time.sleep(0.01)
    return set(process_tree.children(os.getpid()))

Reserve(Loop(), 4 << 20)
first = holders()
assert len(first) > 1
seen = set(first)
for number in (1, len(first)):
    for pid in list(holders())[:number]:
        os.kill(pid, signal.SIGKILL)
        (ended,), _, _ = select.select(list(Loop.handlers), [], [])
        Loop.handlers[ended]()
    seen |= holders()
assert len(seen) == 2 * len(first) + 1 and len(Loop.handlers) == len(first)
assert len(os.listdir("/proc/self/fd")) == 4 + len(first), os.listdir("/proc/self/fd")  # its three, pipes, the folder
print(*holders())
"""


def test_what_was_taken_is_held_again_by_processes_that_end_with_their_server() -> None:
    argv = [sys.executable, "-I", "-S", "-c", RENEWED, str(CELLBLOCK)]
    done = subprocess.run(
        argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 0, done.stderr
    deadline = time.monotonic() + 10
    while any(process_tree.began(int(pid)) for pid in done.stdout.split()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
