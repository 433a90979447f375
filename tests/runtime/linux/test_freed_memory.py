"""Memory that a block frees is reused without asking the kernel for each page again."""

from __future__ import annotations

from cellblock import CodeBlock, Limits
from cellblock.limits import MIB
from cellblock.sync import SandboxCommandLineCodeExecutor
from tests.executors.session.live_session import skip_without_sandbox

REPEATED = """
import resource
for _ in range(100):
    [b"x" * (1 << 20) for _ in range(8)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""
LARGE = "for _ in range(5):\n    b'x' * (200 << 20)\nprint('done')"


def test_memory_that_is_allocated_repeatedly_causes_few_page_faults() -> None:
    skip_without_sandbox()
    with SandboxCommandLineCodeExecutor() as executor:
        faults = int(executor.execute_code_blocks([CodeBlock(REPEATED, "python")]).check().output)
    assert faults < 10_000  # 2048 per round if freed memory is returned to the kernel


def test_very_large_blocks_of_memory_are_returned_to_the_kernel_at_once() -> None:
    skip_without_sandbox()
    resident = "print(int(open('/proc/self/statm').read().split()[1]) * 4096)"
    with SandboxCommandLineCodeExecutor(limits=Limits(memory_bytes=512 * MIB)) as executor:
        result = executor.execute_code_blocks([CodeBlock(f"{LARGE}\n{resident}", "python")]).check()
    done, left = result.output.split()
    assert (done, int(left) < 100 * MIB) == ("done", True)
