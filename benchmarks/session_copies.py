"""Checkpoint, restore and fork a live session, small or with much in its folder or memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from benchmarks.figures import Bound, Figure, check_median
from benchmarks.measure import Effort
from benchmarks.session_speed import run_live, seconds_of
from cellblock import Limits, SandboxSessionCodeExecutor, SandboxSessionServer
from cellblock.limits import GIB

_BRANCHES = 2
_MANY_FILES = """
import os
for number in range({count}):
    with open(f"file{{number}}", "w") as file:
        file.write("x" * 1000)
"""
_LARGE_FILE = """
with open("large", "wb") as file:
    for _ in range({count}):
        file.write(os.urandom(1_000_000))
"""
_MEMORY = "held = bytearray(os.urandom(1_000_000)) * {count}"
# So that no copy can be left out: something changed since the last one.
_CHANGE = """
number += 1
with open("changed", "w") as file:
    file.write(str(number))
"""


def small(effort: Effort) -> list[Figure]:
    """Copy a session that holds next to nothing."""
    return asyncio.run(_measure("small", "", 10, effort))


def many_files(effort: Effort) -> list[Figure]:
    """Copy a session whose work folder has 1 000 files."""
    count = effort.pick(1000, 50)
    return asyncio.run(_measure(f"{count} files", _MANY_FILES.format(count=count), 10, effort))


def large_file(effort: Effort) -> list[Figure]:
    """Copy a session whose work folder has a file of 1 GB."""
    count = effort.pick(1000, 10)
    return asyncio.run(_measure(f"a {count} MB file", _LARGE_FILE.format(count=count), 10, effort))


def large_memory(effort: Effort) -> list[Figure]:
    """Copy a session that holds 1 GB of memory."""
    count = effort.pick(1000, 10)
    return asyncio.run(_measure(f"{count} MB of memory", _MEMORY.format(count=count), 45, effort))


async def _measure(title: str, setup: str, most: float, effort: Effort) -> list[Figure]:
    """Return the times of the three copies. Each may take at most `most` ms."""
    seconds: dict[str, list[float]] = {"checkpoint": [], "restore": [], f"fork({_BRANCHES})": []}
    async with _session() as session:
        await run_live(session, f"import os\nnumber = 0\n{setup}")
        for number in range(effort.pick(9, 1) + 1):
            for name, value in zip(seconds, await _copy(session), strict=True):
                if number:  # the first round is a warm-up
                    seconds[name].append(value)
    return [
        check_median(f"{title}: {name}", values, Bound("at most", most), unit="ms", scale=1000)
        for name, values in seconds.items()
    ]


async def _copy(session: SandboxSessionCodeExecutor) -> tuple[float, float, float]:
    """Return the seconds of a checkpoint, of a restore and of a fork."""
    branches: list[SandboxSessionCodeExecutor] = []

    async def fork() -> None:
        branches.extend(await session.fork(_BRANCHES))

    await run_live(session, _CHANGE)
    checkpoint = await seconds_of(session.checkpoint("one"))
    await run_live(session, _CHANGE)
    restore = await seconds_of(session.restore("one"))
    await session.drop("one")
    await run_live(session, _CHANGE)
    try:
        return checkpoint, restore, await seconds_of(fork())
    finally:
        for branch in branches:
            await branch.stop()


@contextlib.asynccontextmanager
async def _session() -> AsyncGenerator[SandboxSessionCodeExecutor]:
    limits = Limits(memory_bytes=8 * GIB, file_bytes=None, written_bytes=None)
    async with (
        SandboxSessionServer(limits=limits) as server,
        SandboxSessionCodeExecutor(server=server) as session,
    ):
        yield session
