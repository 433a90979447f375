"""`Limits.wall_seconds` bounds all that runs in a box, whatever `timeout` says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cellblock import Limits, Sandbox
from cellblock.box.results import CommandResult
from cellblock.sandbox.probe import unavailable_reason


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


@pytest.mark.parametrize("run", RUNS)
def test_a_command_has_at_most_the_wall_seconds_of_the_box(run: str) -> None:
    if reason := unavailable_reason():
        pytest.skip(f"the sandbox is not available: {reason}")

    async def main() -> None:
        async with Sandbox(timeout=None, limits=Limits(wall_seconds=0.5)) as box:
            result = await RUNS[run](box, "echo out; sleep 10")
        assert (result.exit_code, result.timed_out, result.stdout) == (124, True, b"out\n")

    asyncio.run(main())
