"""What a block frees is kept for what it makes next: the kernel is not asked for each page again."""

from __future__ import annotations

from cellblock import CodeBlock, Limits
from cellblock.limits import MIB
from cellblock.sync import SandboxCommandLineCodeExecutor
from tests.executors.session.live_session import need_sandbox

AGAIN = """
import resource
for _ in range(100):
    [b"x" * (1 << 20) for _ in range(8)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""
LARGE = "for _ in range(5):\n    b'x' * (200 << 20)\nprint('done')"


def test_memory_that_is_made_again_and_again_costs_no_faults() -> None:
    need_sandbox()
    with SandboxCommandLineCodeExecutor() as executor:
        faults = int(executor.execute_code_blocks([CodeBlock(AGAIN, "python")]).check().output)
    assert faults < 10_000  # 2048 in each of the 100 rounds, where it goes back


def test_what_is_very_large_goes_back_at_once() -> None:
    need_sandbox()
    resident = "print(int(open('/proc/self/statm').read().split()[1]) * 4096)"
    with SandboxCommandLineCodeExecutor(limits=Limits(memory_bytes=512 * MIB)) as executor:
        result = executor.execute_code_blocks([CodeBlock(f"{LARGE}\n{resident}", "python")]).check()
    done, left = result.output.split()
    assert (done, int(left) < 100 * MIB) == ("done", True)
