"""Checkpoint, fork and restore a live session with a large table."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from benchmarks.figures import Bound, Figure, check_median
from benchmarks.kernels import require_modules
from benchmarks.measure import Effort
from benchmarks.processes import page_table_bytes, processes_of_server, proportional_bytes
from benchmarks.session_speed import run_live, seconds_of
from cellblock import Checkpoint, Limits, SandboxSessionCodeExecutor, SandboxSessionServer
from cellblock.limits import GIB

_MIB = 1 << 20
_SETTLE_SECONDS = 0.3  # time until the background work of a copy has ended
_TABLE = """
import numpy, pandas
frame = pandas.DataFrame(numpy.full(({rows}, 8), 1.5), copy=False)
frame.shape
"""


@dataclass
class CopyMeasurements:
    """The seconds and bytes that each operation took."""

    checkpoints: list[float] = field(default_factory=list[float])
    forks: list[float] = field(default_factory=list[float])
    restores: list[float] = field(default_factory=list[float])
    fork_bytes: list[float] = field(default_factory=list[float])


def measure_copies(effort: Effort) -> list[Figure]:
    """Checkpoint, fork and restore a session with a table of 1 GB; measure the memory of forks."""
    require_modules("numpy", "pandas")
    megabytes = effort.count("megabytes", 1000, 100)
    found = asyncio.run(_measure(megabytes, effort.pick(15, 2), effort.pick(8, 2)))
    held = f"a session that holds {megabytes / 1000:g} GB"
    note = "sum of PSS over all processes, and of their page tables, divided by the number of forks"
    return [
        check_median(
            f"checkpoint of {held}", found.checkpoints, Bound("at most", 60), unit="ms", scale=1000
        ),
        check_median(f"fork of {held}", found.forks, Bound("at most", 60), unit="ms", scale=1000),
        check_median(
            f"restore of {held}", found.restores, Bound("at most", 20), unit="ms", scale=1000
        ),
        check_median(
            "memory of an untouched fork",
            found.fork_bytes,
            Bound("at most", 10),
            unit="MB",
            scale=1 / _MIB,
            note=note,
        ),
    ]


async def _measure(megabytes: int, rounds: int, branches: int) -> CopyMeasurements:
    found = CopyMeasurements()
    async with _session_with_table(megabytes) as (server, session):
        for number in range(rounds + 1):
            checkpoint, checkpoint_seconds = await _timed_checkpoint(session)
            restore_seconds = await seconds_of(session.restore(checkpoint))
            await session.drop(checkpoint)
            fork_seconds = await _fork_seconds(session)
            if number:  # the first round is a warm-up
                found.checkpoints.append(checkpoint_seconds)
                found.restores.append(restore_seconds)
                found.forks.append(fork_seconds)
        for _ in range(3):
            found.fork_bytes.append(await _bytes_per_fork(server, session, branches))
    return found


@contextlib.asynccontextmanager
async def _session_with_table(
    megabytes: int,
) -> AsyncGenerator[tuple[SandboxSessionServer, SandboxSessionCodeExecutor]]:
    limits = Limits(memory_bytes=8 * GIB, checkpoints=4)
    async with (
        SandboxSessionServer(preload=("numpy", "pandas"), limits=limits) as server,
        SandboxSessionCodeExecutor(server=server) as session,
    ):
        await run_live(session, _TABLE.format(rows=megabytes * 1_000_000 // 64))
        yield server, session


async def _timed_checkpoint(session: SandboxSessionCodeExecutor) -> tuple[Checkpoint, float]:
    started = asyncio.get_running_loop().time()
    checkpoint = await session.checkpoint()
    return checkpoint, asyncio.get_running_loop().time() - started


async def _fork_seconds(session: SandboxSessionCodeExecutor) -> float:
    branches: list[SandboxSessionCodeExecutor] = []

    async def fork() -> None:
        branches.extend(await session.fork())

    try:
        return await seconds_of(fork())
    finally:
        for branch in branches:
            await branch.stop()


async def _bytes_per_fork(
    server: SandboxSessionServer, session: SandboxSessionCodeExecutor, count: int
) -> float:
    await asyncio.sleep(_SETTLE_SECONDS)
    before = _memory_bytes(server)
    branches = await session.fork(count)
    try:
        await asyncio.sleep(_SETTLE_SECONDS)
        return (_memory_bytes(server) - before) / count
    finally:
        for branch in branches:
            await branch.stop()


def _memory_bytes(server: SandboxSessionServer) -> int:
    pids = processes_of_server(server)
    return proportional_bytes(pids) + page_table_bytes(pids)
