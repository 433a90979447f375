"""`Limits.wall_seconds` bounds all that runs in a box, whatever `timeout` says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

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
