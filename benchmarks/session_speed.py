"""Time to start a live session and to run a block, compared with an ipykernel."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import NamedTuple

from benchmarks.figures import Bound, Figure, compare_medians
from benchmarks.kernels import Kernel, require_kernels, running_kernel
from benchmarks.measure import Effort
from cellblock import CodeBlock, SandboxSessionCodeExecutor, SandboxSessionServer

CELL = "x = 1 + 1; x"
_BATCH = 40

RunCell = Callable[[], Awaitable[str]]
Measurement = Callable[[], Awaitable[float]]


class Contenders(NamedTuple):
    """One block, run in a session with automatic checkpoints, in one without, and in a kernel."""

    with_checkpoints: RunCell
    without_checkpoints: RunCell
    theirs: RunCell


async def run_live(session: SandboxSessionCodeExecutor, code: str) -> str:
    """Run `code` in a session and return its output."""
    return (await session.execute_code_blocks([CodeBlock(code, "python")])).check().output.strip()


async def interleave_async(rounds: int, **contenders: Measurement) -> dict[str, list[float]]:
    """Measure each contender once per round, A B A B. The first round is discarded."""
    values: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, contender in contenders.items():
            value = await contender()
            if number:
                values[name].append(value)
    return values


async def seconds_of(work: Awaitable[object]) -> float:
    """Return the seconds until `work` is done."""
    started = time.perf_counter()
    await work
    return time.perf_counter() - started


def starting(effort: Effort) -> list[Figure]:
    """Start a session on a running server, and a kernel, each until its first result."""
    require_kernels()
    values = asyncio.run(_start_times(effort.pick(15, 2)))
    measure, bound = "start until the first answer", Bound("at most", 0.03)
    return [
        compare_medians(measure, values["ours"], values["theirs"], bound, unit="ms", scale=1000)
    ]


async def _start_times(rounds: int) -> dict[str, list[float]]:
    async with SandboxSessionServer() as server:
        return await interleave_async(
            rounds, ours=lambda: _start_session(server), theirs=_start_kernel
        )


async def _start_session(server: SandboxSessionServer) -> float:
    session = SandboxSessionCodeExecutor(server=server)
    try:
        return await seconds_of(run_live(session, CELL))
    finally:
        await session.stop()


async def _start_kernel() -> float:
    started: list[Kernel] = []

    async def first_answer() -> None:
        started.append(await Kernel.start())
        await started[0].run(CELL)

    try:
        return await seconds_of(first_answer())
    finally:
        for one in started:
            await one.stop()


def back_to_back(effort: Effort) -> list[Figure]:
    """Run blocks back to back: the mean of a batch, which includes automatic checkpoints."""

    async def measure() -> dict[str, list[float]]:
        async with _contenders() as cells:
            return await interleave_async(
                effort.pick(30, 3),
                keeping=lambda: _mean_of_batch(cells.with_checkpoints),
                plain=lambda: _mean_of_batch(cells.without_checkpoints),
                theirs=lambda: _mean_of_batch(cells.theirs),
            )

    values, figures = asyncio.run(measure()), list[Figure]()
    for name, with_copies, most in (("keeping", "with", 0.65), ("plain", "without", 0.17)):
        title = f"back to back, {with_copies} copies"
        figures.append(
            compare_medians(
                title, values[name], values["theirs"], Bound("at most", most), unit="ms", scale=1000
            )
        )
    return figures


def spaced(effort: Effort) -> list[Figure]:
    """Run blocks with pauses of 5 ms."""

    async def measure() -> dict[str, list[float]]:
        async with _contenders() as cells:
            return await interleave_async(
                effort.pick(30, 3),
                keeping=lambda: _median_spaced(cells.with_checkpoints),
                theirs=lambda: _median_spaced(cells.theirs),
            )

    values = asyncio.run(measure())
    measure_name = "5 ms between, with copies"
    bound = Bound("at most", 0.15)
    return [
        compare_medians(
            measure_name, values["keeping"], values["theirs"], bound, unit="ms", scale=1000
        )
    ]


@contextlib.asynccontextmanager
async def _contenders() -> AsyncGenerator[Contenders]:
    async with (
        running_kernel() as other,
        SandboxSessionServer() as server,
        SandboxSessionCodeExecutor(server=server) as keeping,
        SandboxSessionCodeExecutor(server=server, checkpoints=False) as plain,
    ):
        cells = Contenders(
            lambda: run_live(keeping, CELL), lambda: run_live(plain, CELL), lambda: other.run(CELL)
        )
        if (answers := {await cell() for cell in cells}) != {"2"}:
            raise RuntimeError(f"All results should be 2, but they are {answers}.")
        yield cells


async def _mean_of_batch(cell: RunCell) -> float:
    async def batch() -> None:
        for _ in range(_BATCH):
            await cell()

    return await seconds_of(batch()) / _BATCH


async def _median_spaced(cell: RunCell) -> float:
    values: list[float] = []
    for _ in range(15):
        await asyncio.sleep(0.005)
        values.append(await seconds_of(cell()))
    return statistics.median(values)
