"""run_many: judge many programs, several at a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable

from ..executors.command_line.sandbox import SandboxCommandLineCodeExecutor
from ..limits import Limits
from .judge import judge
from .programs import JudgeLimits, Program
from .verdicts import Verdict


async def run_many(
    programs: Iterable[Program], *, limits: JudgeLimits | None = None
) -> AsyncGenerator[Verdict, None]:
    """Judge `programs` and yield their verdicts."""
    limits = limits or JudgeLimits()
    own = Limits(
        cpu_seconds=limits.cpu_seconds,
        memory_bytes=limits.memory_bytes,
        output_bytes=limits.output_bytes,
    )
    async with SandboxCommandLineCodeExecutor(limits.wall_seconds, limits=own) as executor:
        for program in programs:
            yield await judge(executor, program, limits)
