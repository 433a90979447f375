"""Batches in the sandbox, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from pathlib import Path
from typing import Any

from cellblock import Policy, SandboxCommandLineCodeExecutor
from cellblock.batch import Program, Verdict, run_many
from tests.executors.session.live_session import skip_without_sandbox


def judge_all(programs: Any, **options: Any) -> list[Verdict]:
    """Return all verdicts in the order in which `run_many` yields them."""

    async def collect() -> list[Verdict]:
        return [verdict async for verdict in run_many(programs, **options)]

    skip_without_sandbox()
    return asyncio.run(collect())


def with_generator(
    programs: Any,
    use: Callable[[AsyncGenerator[Verdict, None]], Coroutine[Any, Any, None]],
    **options: Any,
) -> None:
    """Run `use` with the generator that `run_many` returns."""
    skip_without_sandbox()
    asyncio.run(use(run_many(programs, **options)))


def sandbox_with(folder: Path) -> SandboxCommandLineCodeExecutor:
    """Return an executor whose programs can read and write `folder`."""
    return SandboxCommandLineCodeExecutor(policy=Policy(read_write=[str(folder)]))


def waiting(program_id: str, file: Path) -> Program:
    """Return a program that ends when `file` exists."""
    code = f"import os, time\nwhile not os.path.exists({str(file)!r}): time.sleep(0.01)"
    return Program(id=program_id, code=code)


def noting(program_id: str, folder: Path) -> Program:
    """Return a program that adds its ID to the file `ran` in `folder` whenever it is run."""
    code = f"with open({str(folder / 'ran')!r}, 'a') as file: file.write('{program_id}\\n')"
    return Program(id=program_id, code=code)


def ran(folder: Path) -> list[str]:
    """Return the IDs of the programs that were run, once for each run."""
    file = folder / "ran"
    return file.read_text().split() if file.exists() else []
