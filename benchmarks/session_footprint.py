"""The resources of live sessions: idle ones, compared with an ipykernel, and after many blocks.

Run as a program, this module runs the blocks in a fresh process with its own temporary folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys

from benchmarks.figures import Bound, Figure, compare_medians
from benchmarks.footprint import count_resources, growth_figures
from benchmarks.kernels import require_kernels, require_modules, running_kernel
from benchmarks.measure import Effort, run_in_fresh_process
from benchmarks.processes import processes_of_server, proportional_bytes
from benchmarks.session_speed import CELL, run_live
from cellblock import Limits, SandboxSessionCodeExecutor, SandboxSessionServer

_MIB = 1 << 20
_WARM_UP = 1200  # blocks; from the 1000th on, IPython discards old results
_CHECKPOINT_EVERY = 100
_IDLE = 3.0  # seconds until all background work has ended
_IMPORTS = "import numpy, pandas"


def idle(effort: Effort) -> list[Figure]:
    """Compare the memory per idle session with that of a kernel with the same imports."""
    require_modules("numpy", "pandas")
    require_kernels()
    count = effort.count("sessions", 200, 10)
    ours, processes = asyncio.run(_idle_sessions(count))
    theirs = asyncio.run(_idle_kernel())
    measure = f"memory of each of {count}, with pandas"
    note = f"{processes} processes, all of the server's; each session with its automatic checkpoint"
    return [
        compare_medians(
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
    async with running_kernel() as other:
        await other.run(_IMPORTS)
        await asyncio.sleep(_IDLE)
        return proportional_bytes(other.processes())


def growth(effort: Effort) -> list[Figure]:
    """Count resources before and after many blocks in one session, after a warm-up."""
    cells = effort.count("cells", 10_000, 300)
    warm_up = min(_WARM_UP, cells)
    return growth_figures(
        f"{cells} cells with checkpoints", *run_in_fresh_process(__name__, str(warm_up), str(cells))
    )


async def measure_in_this_process(*counts: int) -> list[dict[str, int]]:
    """Run each number of blocks with regular checkpoints; return the resources after each."""
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
            found.append(
                count_resources(processes_of_server(server), "the server's and the session's")
            )
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure_in_this_process(*map(int, sys.argv[1:])))))
