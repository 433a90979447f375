"""Memory that a block frees is reused without asking the kernel for each page again."""

from __future__ import annotations

from cellblock import Limits
from cellblock.limits import MIB
from tests.sandbox.probes import checked_output, sandbox

REPEATED = """
import resource
for _ in range(100):
    [b"x" * (1 << 20) for _ in range(8)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""
LARGE = "for _ in range(5):\n    b'x' * (200 << 20)\nprint('done')"


def test_memory_that_is_allocated_repeatedly_causes_few_page_faults() -> None:
    with sandbox() as executor:
        # 2048 per round if freed memory is returned to the kernel
        assert int(checked_output(executor, REPEATED)) < 10_000


def test_very_large_blocks_of_memory_are_returned_to_the_kernel_at_once() -> None:
    resident = "print(int(open('/proc/self/statm').read().split()[1]) * 4096)"
    with sandbox(limits=Limits(memory_bytes=512 * MIB)) as executor:
        done, left = checked_output(executor, f"{LARGE}\n{resident}").split()
    assert (done, int(left) < 100 * MIB) == ("done", True)
