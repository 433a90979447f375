"""What live sessions hold: many that are idle, beside an ipykernel, and one after many cells.

Run as a program, it is the process that runs the many cells: fresh, with a temporary folder of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys

from benchmarks.figures import Bound, Figure, beside
from benchmarks.footprint import grown, holdings
from benchmarks.kernels import kernel, need, need_kernels
from benchmarks.measure import Effort, in_fresh_process
from benchmarks.processes import processes_of_server, proportional_bytes
from benchmarks.session_speed import CELL, run_live
from cellblock import Limits, SandboxSessionCodeExecutor, SandboxSessionServer

_MIB = 1 << 20
_WARM_UP = 1200  # cells; IPython itself lets go of old results from the 1000th on
_CHECKPOINT_EVERY = 100
_IDLE = 3.0  # seconds after which nothing goes on any more
_IMPORTS = "import numpy, pandas"


def idle(effort: Effort) -> list[Figure]:
    """Divide the memory of a server with many sessions by their number, beside a kernel with the same imports."""
    need("numpy", "pandas")
    need_kernels()
    count = effort.count("sessions", 200, 10)
    ours, processes = asyncio.run(_idle_sessions(count))
    theirs = asyncio.run(_idle_kernel())
    measure = f"{count} idle sessions with numpy and pandas, PSS a session"
    note = f"{processes} processes, all of the server's; each session with its automatic checkpoint"
    return [
        beside(
            measure, [ours], [theirs], Bound("at most", 0.1), unit="MB", scale=1 / _MIB, note=note
        )
    ]


async def _idle_sessions(count: int) -> tuple[float, int]:
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(SandboxSessionServer(preload=("numpy", "pandas")))
        for _ in range(count):
            session = await stack.enter_async_context(SandboxSessionCodeExecutor(server=server))
            await run_live(session, _IMPORTS)
        await asyncio.sleep(_IDLE)
        pids = processes_of_server(server)
        return proportional_bytes(pids) / count, len(pids)


async def _idle_kernel() -> float:
    async with kernel() as other:
        await other.run(_IMPORTS)
        await asyncio.sleep(_IDLE)
        return proportional_bytes(other.processes())


def growth(effort: Effort) -> list[Figure]:
    """Count what there is before and after many cells of one session; before come as many that only warm up."""
    cells = effort.count("cells", 10_000, 300)
    warm_up = min(_WARM_UP, cells)
    return grown(
        f"{cells} cells with checkpoints", *in_fresh_process(__name__, str(warm_up), str(cells))
    )


async def measured_alone(*counts: int) -> list[dict[str, int]]:
    """Run so many cells, with an explicit checkpoint now and then, and give after each lot what there is."""
    found: list[dict[str, int]] = []
    async with (
        SandboxSessionServer(limits=Limits(checkpoints=1)) as server,
        SandboxSessionCodeExecutor(server=server) as session,
    ):
        for count in counts:
            for number in range(count):
                await run_live(session, CELL)
                if number % _CHECKPOINT_EVERY == 0:
                    await session.drop(await session.checkpoint())
            await asyncio.sleep(_IDLE)
            found.append(holdings(processes_of_server(server), "the server's and the session's"))
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measured_alone(*map(int, sys.argv[1:])))))
