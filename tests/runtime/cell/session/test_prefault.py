"""After a fork, the pages that every block writes to are copied in advance, and no others."""

import json
import sys

from tests.runtime.python_process import run_python

PROGRAM = """
import gc, json, mmap, os, resource, sys
sys.path.insert(0, sys.argv[1])
from cellblock.runtime.cell.session.prefault import Prefaulter
PAGES, SIZE = 300, mmap.PAGESIZE
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
often, once = (mmap.mmap(-1, 2 * PAGES * SIZE, flags=flags) for _ in range(2))
table = mmap.mmap(-1, 1 << 30, flags=flags)  # too large to be scanned
gc.disable()

def faults(memory, count=PAGES):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for page in range(count):
        memory[2 * page * SIZE] = 1  # every second page, so that none is next to another
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def fork_checkpoint():
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    return writer

prefaulter, found, checkpoints = Prefaulter(), {}, []
faults(once), faults(often)
for is_idle in (True, True, True, True, False, True):
    prefaulter.record_fork()
    checkpoints.append(fork_checkpoint())
    prefaulter.prefault(lambda: is_idle)
    found.setdefault("often", []).append(faults(often))
found["once"] = faults(once)
print(json.dumps(found))
"""


def test_only_pages_that_are_written_to_repeatedly_are_copied_in_advance() -> None:
    found = json.loads(run_python(PROGRAM, *sys.path[:1]))
    first, second, *others, busy, last = found["often"]
    assert min(first, second, busy) >= 300, "nothing can be known yet, or the session is busy"
    assert max(*others[1:], last) < 100
    assert found["once"] >= 300
