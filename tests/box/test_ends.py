"""What runs in a box ends with `Limits.wall_seconds`, and with the task that awaits it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from cellblock import Limits, Sandbox
from cellblock.box.results import CommandResult


async def spawn(box: Sandbox, command: str) -> CommandResult:
    async with await box.spawn(command) as process:
        return await process.wait()


async def run_in_shell(box: Sandbox, command: str) -> CommandResult:
    async with box.shell() as shell:
        return await shell.run(command)


async def run_longer_in_shell(box: Sandbox, command: str) -> CommandResult:
    async with box.shell() as shell:
        return await shell.run(command, timeout=1000)


RUNS: dict[str, Callable[[Sandbox, str], Awaitable[CommandResult]]] = {
    "exec": lambda box, command: box.exec(command),
    "exec with a longer time limit": lambda box, command: box.exec(command, timeout=1000),
    "spawn": spawn,
    "shell": run_in_shell,
    "shell with a longer time limit": run_longer_in_shell,
}


@pytest.mark.usefixtures("needs_sandbox")
async def test_a_command_has_at_most_the_wall_seconds_of_the_box() -> None:
    async with Sandbox(timeout=None, limits=Limits(wall_seconds=0.5)) as box:
        ends = [await run(box, "echo out; sleep 10") for run in RUNS.values()]
    found = {
        name: (end.exit_code, end.timed_out, end.stdout)
        for name, end in zip(RUNS, ends, strict=True)
    }
    assert found == dict.fromkeys(RUNS, (124, True, b"out\n"))


@pytest.mark.usefixtures("needs_sandbox")
async def test_a_command_ends_with_the_task_that_awaits_it(tmp_path: Path) -> None:
    async with Sandbox(work_dir=tmp_path) as box:
        for name, run in RUNS.items():
            task = asyncio.ensure_future(run(box, f"touch '{name}'; exec sleep 1000"))
            while not (tmp_path / name).exists():
                await asyncio.sleep(0.01)
            await cancel(task)
            assert await sleeping(box) == b"", name


@pytest.mark.usefixtures("needs_sandbox")
async def test_a_process_ends_that_its_caller_never_got(tmp_path: Path) -> None:
    """Its start and the cancel arrive together, since this thread is busy meanwhile."""
    async with Sandbox(work_dir=tmp_path) as box:
        task = asyncio.ensure_future(box.spawn("touch started; exec sleep 1000"))
        await asyncio.sleep(0)
        while not (tmp_path / "started").exists():
            time.sleep(0.01)  # noqa: ASYNC251 - the thread must be busy
        await cancel(task)
        assert await sleeping(box) == b""


async def cancel(task: asyncio.Future[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def sleeping(box: Sandbox) -> bytes:
    return (await box.exec(["pgrep", "-x", "sleep"])).stdout
