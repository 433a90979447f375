"""How long a live session takes to begin, and to answer, beside an ipykernel."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import NamedTuple

from benchmarks.figures import Bound, Figure, beside
from benchmarks.kernels import Kernel, kernel, need_kernels
from benchmarks.measure import Effort
from cellblock import CodeBlock, SandboxSessionCodeExecutor, SandboxSessionServer

CELL = "x = 1 + 1; x"
_BATCH = 40

Cell = Callable[[], Awaitable[str]]
Measured = Callable[[], Awaitable[float]]


class Three(NamedTuple):
    """One cell, run with a copy of the session kept before each, without, and by a kernel."""

    keeping: Cell
    plain: Cell
    theirs: Cell


async def run_live(session: SandboxSessionCodeExecutor, code: str) -> str:
    """Run `code` in a session, and give what it shows."""
    return (await session.execute_code_blocks([CodeBlock(code, "python")])).check().output.strip()


async def in_turn(rounds: int, **contenders: Measured) -> dict[str, list[float]]:
    """Measure each contender once a round, A B A B; what the first round gives is thrown away."""
    values: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, contender in contenders.items():
            value = await contender()
            if number:
                values[name].append(value)
    return values


async def seconds_of(work: Awaitable[object]) -> float:
    """Give the seconds until `work` is done."""
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


def starting(effort: Effort) -> list[Figure]:
    """Start a session of a server that runs, and a kernel, each until its first answer."""
    need_kernels()
    values = asyncio.run(_starts(effort.pick(15, 2)))
    measure, bound = "start of a session until its first answer", Bound("at most", 0.03)
    return [beside(measure, values["ours"], values["theirs"], bound, unit="ms", scale=1000)]


async def _starts(rounds: int) -> dict[str, list[float]]:
    async with SandboxSessionServer() as server:
        return await in_turn(rounds, ours=lambda: _start_session(server), theirs=_start_kernel)


async def _start_session(server: SandboxSessionServer) -> float:
    session = SandboxSessionCodeExecutor(server=server)
    try:
        return await seconds_of(run_live(session, CELL))
    finally:
        await session.stop()


async def _start_kernel() -> float:
    started: list[Kernel] = []

    async def first_answer() -> None:
        started.append(await Kernel.started())
        await started[0].run(CELL)

    try:
        return await seconds_of(first_answer())
    finally:
        for one in started:
            await one.stop()


def back_to_back(effort: Effort) -> list[Figure]:
    """Run a cell again at once: the mean of a batch, in which keeping a copy of the session counts as well."""

    async def measure() -> dict[str, list[float]]:
        async with _three() as cells:
            return await in_turn(
                effort.pick(30, 3),
                keeping=lambda: _mean_of_batch(cells.keeping),
                plain=lambda: _mean_of_batch(cells.plain),
                theirs=lambda: _mean_of_batch(cells.theirs),
            )

    values, figures = asyncio.run(measure()), list[Figure]()
    for name, with_copies, most in (("keeping", "on", 0.5), ("plain", "off", 0.12)):
        title = f"trivial cell, back to back, automatic checkpoint {with_copies}"
        figures.append(
            beside(
                title, values[name], values["theirs"], Bound("at most", most), unit="ms", scale=1000
            )
        )
    return figures


def spaced(effort: Effort) -> list[Figure]:
    """Run a cell with 5 ms between."""

    async def measure() -> dict[str, list[float]]:
        async with _three() as cells:
            return await in_turn(
                effort.pick(30, 3),
                keeping=lambda: _median_spaced(cells.keeping),
                theirs=lambda: _median_spaced(cells.theirs),
            )

    values = asyncio.run(measure())
    measure_name, bound = (
        "trivial cell, 5 ms between, automatic checkpoint on",
        Bound("at most", 0.15),
    )
    return [beside(measure_name, values["keeping"], values["theirs"], bound, unit="ms", scale=1000)]


@contextlib.asynccontextmanager
async def _three() -> AsyncGenerator[Three]:
    async with (
        kernel() as other,
        SandboxSessionServer() as server,
        SandboxSessionCodeExecutor(server=server) as keeping,
        SandboxSessionCodeExecutor(server=server, checkpoints=False) as plain,
    ):
        cells = Three(
            lambda: run_live(keeping, CELL), lambda: run_live(plain, CELL), lambda: other.run(CELL)
        )
        if (answers := {await cell() for cell in cells}) != {"2"}:
            raise RuntimeError(f"The answers should all be 2, and are {answers}.")
        yield cells


async def _mean_of_batch(cell: Cell) -> float:
    async def batch() -> None:
        for _ in range(_BATCH):
            await cell()

    return await seconds_of(batch()) / _BATCH


async def _median_spaced(cell: Cell) -> float:
    values: list[float] = []
    for _ in range(15):
        await asyncio.sleep(0.005)
        values.append(await seconds_of(cell()))
    return statistics.median(values)
