"""Memory in reserve: held by a process that is ended first, and held again when it was."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from cellblock.cell import boot, tree

CELLBLOCK = Path(boot.__file__).resolve().parent.parent

RENEWED = """
import sys, types
package = types.ModuleType("cellblock")
package.__path__ = [sys.argv[1]]
sys.modules["cellblock"] = package
import os, re, select, signal, time
from cellblock.cell import tree
from cellblock.cell.reserve import Reserve

class Loop:
    handlers = {}
    def watch(self, descriptor, handler, flags=0):
        self.handlers[descriptor] = handler
    def forget(self, descriptor):
        del self.handlers[descriptor]

def holds(pid):
    private = re.search("Private_Dirty: +([0-9]+)", open(f"/proc/{pid}/smaps_rollup").read())
    return private and int(private[1]) >= 4096 and open(f"/proc/{pid}/oom_score_adj").read() == "1000\\n"

def holder():
    (pid,) = tree.children(os.getpid())
    while not holds(pid):
        time.sleep(0.01)
    return pid

Reserve(Loop(), 4 << 20)
pids = []
for _ in range(3):
    pids.append(holder())
    os.kill(pids[-1], signal.SIGKILL)
    (ended,), _, _ = select.select(list(Loop.handlers), [], [])
    Loop.handlers[ended]()
last = holder()
assert len({*pids, last}) == 4 and len(Loop.handlers) == 1
assert len(os.listdir("/proc/self/fd")) == 5, os.listdir("/proc/self/fd")  # its three, the pipe's, the folder
print(last)
"""


def test_what_was_taken_is_held_again_by_one_process_that_ends_with_its_server() -> None:
    argv = [sys.executable, "-I", "-S", "-c", RENEWED, str(CELLBLOCK)]
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, done.stderr
    deadline = time.monotonic() + 10
    while tree.began(int(done.stdout)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
