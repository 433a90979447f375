"""Judge single programs in one sandbox, as tests of judge mode do."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from cellblock import Limits, SandboxCommandLineCodeExecutor
from cellblock.batch import FunctionTests, JudgeLimits, Program, Tests, Verdict, judge
from cellblock.runtime.linux.safe_folder import empty_folder

DOUBLES = "def check(candidate):\n    assert candidate(21) == 42\n"


class Judging:
    """A started executor, whose work folder is empty before each program."""

    def __init__(self, executor: SandboxCommandLineCodeExecutor) -> None:
        self.executor = executor

    def judge(
        self,
        code: str,
        tests: Tests | None,
        *,
        cpu_seconds: float = 10,
        wall_seconds: float | None = 60,
        output_bytes: int = 10_000,
        **program: Any,
    ) -> Verdict:
        """Return the verdict about the program `code`."""
        limits = JudgeLimits(
            cpu_seconds=cpu_seconds, wall_seconds=wall_seconds, output_bytes=output_bytes
        )
        subject = Program(id="1", code=code, tests=tests, **program)
        try:
            return asyncio.run(judge(self.executor, subject, limits))
        finally:
            assert empty_folder(str(self.executor.work_dir))

    def judge_function(
        self, code: str, tests: str = DOUBLES, entry_point: str | None = "f", **options: Any
    ) -> Verdict:
        """Return the verdict about the function `f`, or `entry_point`, of `code`."""
        given = FunctionTests(code=tests, entry_point=entry_point)
        return self.judge(code, given, **options)


@contextmanager
def open_judging() -> Generator[Judging]:
    """Yield a sandbox for programs. Its own limits do not end them."""
    executor = SandboxCommandLineCodeExecutor(limits=Limits(processes=30, memory_bytes=200 << 20))
    asyncio.run(executor.start())
    try:
        yield Judging(executor)
    finally:
        asyncio.run(executor.stop())
