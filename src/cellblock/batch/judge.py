"""Judge one program in an executor."""

from __future__ import annotations

from ..blocks import CodeBlock
from ..executors.base import CodeExecutor
from ..results import CodeResult
from .programs import JudgeLimits, Program
from .verdicts import Outcome, Verdict


async def judge(executor: CodeExecutor, program: Program, limits: JudgeLimits) -> Verdict:
    """Run `program` in `executor`, whose limits are `limits`, and return the verdict.

    Raise the errors of executors if it could not be run.
    """
    del limits
    result = await executor.execute_code_blocks([CodeBlock(program.code, program.language)])
    return Verdict(
        id=program.id,
        outcome=_outcome(result),
        exit_code=result.exit_code,
        output=result.output,
        limit=result.limit,
        cpu_seconds=result.usage.cpu_seconds,
        wall_seconds=result.usage.wall_seconds,
        peak_memory_bytes=result.usage.peak_memory_bytes,
    )


def _outcome(result: CodeResult) -> Outcome:
    if result.outcome == "ok":
        return "passed"
    if result.outcome == "timeout" or result.limit == "cpu_seconds":
        return "timeout"
    return "limit" if result.limit else "failed"
