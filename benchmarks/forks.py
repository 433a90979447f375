"""Fork a session into a hundred branches, and run a first block in each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from benchmarks import sandlock
from benchmarks.figures import Bound, Figure, check_median
from benchmarks.kernels import require_modules
from benchmarks.measure import Effort, NotMeasured
from benchmarks.processes import private_bytes, processes_of_server
from benchmarks.session_speed import run_live, seconds_of
from cellblock import SandboxSessionCodeExecutor, SandboxSessionServer

_MIB = 1 << 20
_SETTLE_SECONDS = 0.5  # time until the background work of the forks has ended


@dataclass
class _Rounds:
    forks: list[float] = field(default_factory=list[float])
    with_results: list[float] = field(default_factory=list[float])
    others: list[float] = field(default_factory=list[float])


def small(effort: Effort) -> list[Figure]:
    """Fork a session that has run a small block; measure the private memory of the branches."""
    return asyncio.run(_measure("small", Bound("at most", 0.4), effort))


def pandas(effort: Effort) -> list[Figure]:
    """Fork a session that has imported numpy and pandas."""
    require_modules("numpy", "pandas")
    return asyncio.run(_measure("with pandas", Bound("at most", 1), effort, "numpy", "pandas"))


async def _measure(held: str, bound: Bound, effort: Effort, *modules: str) -> list[Figure]:
    rounds, count = _Rounds(), effort.pick(100, 10)
    title = f"{count} {held}"
    async with (
        SandboxSessionServer(preload=modules) as server,
        SandboxSessionCodeExecutor(server=server) as session,
    ):
        await run_live(session, "\n".join([*(f"import {name}" for name in modules), "x = 1"]))
        for number in range(effort.pick(7, 1) + 1):
            if number == 1:
                rounds = _Rounds()  # the first round is a warm-up
            await _add_round(session, rounds, count)
            if sandlock.is_installed():
                rounds.others.append(
                    await asyncio.to_thread(sandlock.fork_seconds, count, *modules)
                )
        memory = await _memory_figure(f"{title}, private memory of each", server, session, count)
    theirs = f"sandlock, {title}, results"
    return [
        check_median(title, rounds.forks, None, unit="s"),
        check_median(f"{title}, first results", rounds.with_results, bound, unit="s"),
        check_median(theirs, rounds.others, None, unit="s")
        if rounds.others
        else Figure(theirs, note=sandlock.MISSING),
        memory,
    ]


async def _add_round(session: SandboxSessionCodeExecutor, rounds: _Rounds, count: int) -> None:
    async with _stopping() as branches:

        async def fork() -> None:
            branches.extend(await session.fork(count))

        async def run_in_each() -> None:
            answers = await asyncio.gather(*(run_live(branch, "x + 1") for branch in branches))
            if set(answers) != {"2"}:
                raise RuntimeError(f"All results should be 2, but they are {set(answers)}.")

        rounds.forks.append(await seconds_of(fork()))
        rounds.with_results.append(rounds.forks[-1] + await seconds_of(run_in_each()))


async def _memory_figure(
    title: str, server: SandboxSessionServer, session: SandboxSessionCodeExecutor, count: int
) -> Figure:
    before = set(processes_of_server(server))
    async with _stopping() as branches:
        branches.extend(await session.fork(count))
        await asyncio.sleep(_SETTLE_SECONDS)
        new = [pid for pid in processes_of_server(server) if pid not in before]
        try:
            value = private_bytes(new) / count
        except NotMeasured as error:
            return Figure(title, note=str(error))
    note = f"{len(new) / count:g} processes each"
    return check_median(title, [value], Bound("at most", 5), unit="MB", scale=1 / _MIB, note=note)


@contextlib.asynccontextmanager
async def _stopping() -> AsyncGenerator[list[SandboxSessionCodeExecutor]]:
    """Yield a list of branches that are stopped on exit."""
    branches: list[SandboxSessionCodeExecutor] = []
    try:
        yield branches
    finally:
        await asyncio.gather(*(branch.stop() for branch in branches))
