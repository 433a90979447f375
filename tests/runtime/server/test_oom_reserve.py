"""The OOM reserve: killed processes are replaced, and all end with the server."""

from __future__ import annotations

import time
from pathlib import Path

from cellblock.runtime import bootstrap
from cellblock.runtime.linux import process_tree
from tests.runtime.python_process import run_python

CELLBLOCK = Path(bootstrap.__file__).resolve().parent.parent

PROGRAM = """
import sys, types
package = types.ModuleType("cellblock")
package.__path__ = [sys.argv[1]]
sys.modules["cellblock"] = package
import os, select, signal, time
from cellblock.runtime.linux import process_tree
from cellblock.runtime.server.oom_reserve import OomReserve

class Events:
    handlers = {}
    def register(self, descriptor, handler, flags=0):
        self.handlers[descriptor] = handler
    def unregister(self, descriptor):
        del self.handlers[descriptor]

def held_bytes(pid):
    if open(f"/proc/{pid}/oom_score_adj").read() != "1000\\n":
        return 0
    files = [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
    files = [file for file in files if os.readlink(file).startswith("/memfd:")]
    return sum(os.stat(file).st_blocks * 512 for file in files)

def holders():
    while sum(map(held_bytes, process_tree.children(os.getpid()))) < 4 << 20:
        time.sleep(0.01)
    return set(process_tree.children(os.getpid()))

OomReserve(Events(), 4 << 20)
first = holders()
assert len(first) > 1
seen = set(first)
for number in (1, len(first)):
    for pid in list(holders())[:number]:
        os.kill(pid, signal.SIGKILL)
        (ended,), _, _ = select.select(list(Events.handlers), [], [])
        Events.handlers[ended]()
    seen |= holders()
assert len(seen) == 2 * len(first) + 1 and len(Events.handlers) == len(first)
# The standard streams, the pipes, and the folder that is listed.
assert len(os.listdir("/proc/self/fd")) == 4 + len(first), os.listdir("/proc/self/fd")
print(*holders())
"""


def test_killed_processes_of_the_reserve_are_replaced_and_end_with_the_server() -> None:
    pids = run_python(PROGRAM, CELLBLOCK, isolated=True).split()
    while any(process_tree.start_time(int(pid)) for pid in pids):
        time.sleep(0.01)
