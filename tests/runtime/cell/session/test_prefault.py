"""Warm pages: what every block writes to is copied in advance, after a fork, and nothing else is."""

import json
import subprocess
import sys
import time

from tests.executors.session.live_session import session

PROGRAM = """
import gc, json, mmap, os, resource, sys
sys.path.insert(0, sys.argv[1])
from cellblock.runtime.cell.session.prefault import WarmPages
PAGES, SIZE = 300, mmap.PAGESIZE
often, once = (mmap.mmap(-1, 2 * PAGES * SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(2))
table = mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # which is not looked through
gc.disable()

def faults(memory, count=PAGES):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for page in range(count):
        memory[2 * page * SIZE] = 1  # every second one: none lies beside another
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def copy_kept():
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    return writer

warm, found, kept = WarmPages(), {}, []
faults(once), faults(often)
for wanted in (True, True, True, True, False, True):
    warm.note()
    kept.append(copy_kept())
    warm.copy(lambda: wanted)
    found.setdefault("often", []).append(faults(often))
found["once"] = faults(once)
print(json.dumps(found))
"""


def test_pages_that_are_written_to_again_and_again_are_copied_in_advance_and_no_others() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *sys.path[:1]], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    first, second, *others, not_wanted, last = found["often"]
    assert min(first, second, not_wanted) >= 300, "nothing was known yet, or nothing wanted"
    assert max(*others[1:], last) < 100
    assert found["once"] >= 300


def test_a_session_that_waits_copies_what_its_next_block_will_write_to() -> None:
    code = """before = resource.getrusage(0).ru_minflt
for one in rows: one[0] += 1
print(resource.getrusage(0).ru_minflt - before)"""
    with session(None) as live:
        live.done("import resource; rows = [[0] * 1000 for _ in range(300)]")
        found = list[int]()
        for _ in range(10):
            time.sleep(0.5)
            found.append(int(live.done(code)))
    assert found[0] >= 300, "each row lies in pages of its own"
    assert max(found[-3:]) < 100
