"""What it takes to copy a live session that holds a large table: to freeze it, to branch from it, to go back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from benchmarks.figures import Bound, Figure, alone
from benchmarks.kernels import need
from benchmarks.measure import Effort
from benchmarks.processes import processes_of_server, proportional_bytes, table_bytes
from benchmarks.session_speed import run_live, seconds_of
from cellblock import Checkpoint, Limits, SandboxSessionCodeExecutor, SandboxSessionServer
from cellblock.limits import GIB

_MIB = 1 << 20
_SETTLED = 0.3  # seconds after which nothing that a copy has begun goes on
_TABLE = """
import numpy, pandas
frame = pandas.DataFrame(numpy.full(({rows}, 8), 1.5), copy=False)
frame.shape
"""


@dataclass
class Copies:
    """What each took: seconds, and bytes."""

    checkpoints: list[float] = field(default_factory=list[float])
    forks: list[float] = field(default_factory=list[float])
    restores: list[float] = field(default_factory=list[float])
    fork_bytes: list[float] = field(default_factory=list[float])


def copying(effort: Effort) -> list[Figure]:
    """Checkpoint, fork and restore a session that holds 1 GB in one table; and weigh forks that nobody has touched."""
    need("numpy", "pandas")
    megabytes = effort.count("megabytes", 1000, 100)
    found = asyncio.run(_copy(megabytes, effort.pick(15, 2), effort.pick(8, 2)))
    held = f"a session that holds {megabytes / 1000:g} GB"
    note = "sum of PSS over all processes, and of their page tables, divided by the number of forks"
    return [
        alone(
            f"checkpoint of {held}", found.checkpoints, Bound("at most", 60), unit="ms", scale=1000
        ),
        alone(f"fork of {held}", found.forks, Bound("at most", 60), unit="ms", scale=1000),
        alone(f"restore of {held}", found.restores, Bound("at most", 20), unit="ms", scale=1000),
        alone(
            "memory of an untouched fork",
            found.fork_bytes,
            Bound("at most", 10),
            unit="MB",
            scale=1 / _MIB,
            note=note,
        ),
    ]


async def _copy(megabytes: int, rounds: int, branches: int) -> Copies:
    found = Copies()
    async with _holding(megabytes) as (server, session):
        for number in range(rounds + 1):
            mark, seconds = await _checkpoint(session)
            back = await seconds_of(session.restore(mark))
            await session.drop(mark)
            forked = await _fork(session)
            if number:  # the first of each warms up
                found.checkpoints.append(seconds)
                found.restores.append(back)
                found.forks.append(forked)
        for _ in range(3):
            found.fork_bytes.append(await _weigh(server, session, branches))
    return found


@contextlib.asynccontextmanager
async def _holding(
    megabytes: int,
) -> AsyncGenerator[tuple[SandboxSessionServer, SandboxSessionCodeExecutor]]:
    limits = Limits(memory_bytes=8 * GIB, checkpoints=4)
    async with (
        SandboxSessionServer(preload=("numpy", "pandas"), limits=limits) as server,
        SandboxSessionCodeExecutor(server=server) as session,
    ):
        await run_live(session, _TABLE.format(rows=megabytes * 1_000_000 // 64))
        yield server, session


async def _checkpoint(session: SandboxSessionCodeExecutor) -> tuple[Checkpoint, float]:
    began = asyncio.get_running_loop().time()
    mark = await session.checkpoint()
    return mark, asyncio.get_running_loop().time() - began


async def _fork(session: SandboxSessionCodeExecutor) -> float:
    branches: list[SandboxSessionCodeExecutor] = []

    async def fork() -> None:
        branches.extend(await session.fork())

    try:
        return await seconds_of(fork())
    finally:
        for branch in branches:
            await branch.stop()


async def _weigh(
    server: SandboxSessionServer, session: SandboxSessionCodeExecutor, count: int
) -> float:
    await asyncio.sleep(_SETTLED)
    before = _memory(server)
    branches = await session.fork(count)
    try:
        await asyncio.sleep(_SETTLED)
        return (_memory(server) - before) / count
    finally:
        for branch in branches:
            await branch.stop()


def _memory(server: SandboxSessionServer) -> int:
    pids = processes_of_server(server)
    return proportional_bytes(pids) + table_bytes(pids)
