"""The resources of an idle executor, and their growth after many runs.

Run as a program, this module makes the runs in a fresh process with its own temporary folder.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time

from benchmarks.figures import Bound, Figure, check_median
from benchmarks.measure import HI, Effort, run_in_fresh_process, run_sandboxed
from benchmarks.processes import (
    anonymous_bytes,
    count_control_groups,
    count_descriptors,
    count_mounts,
    processes_of,
    proportional_bytes,
    without_zombies,
)
from cellblock.sync import SandboxCommandLineCodeExecutor

_MIB = 1 << 20
_WARM_UP = 500
_IDLE = 12.0  # seconds after which an executor has ended its surplus cells
# Memory that allocators and tables may add, in MB. A leak of 200 bytes per run exceeds it.
_SETTLED_GROWTH = Bound("at most", 2)
_NO_GROWTH = Bound("at most", 0)


def idle(effort: Effort) -> list[Figure]:
    """Measure the memory of all processes of an idle executor that has run a block."""
    values: list[float] = []
    shares: list[str] = []
    for _ in range(effort.pick(3, 1)):
        with SandboxCommandLineCodeExecutor() as executor:
            run_sandboxed(executor, HI)
            time.sleep(_IDLE)
            pids = processes_of(executor)
            values.append(proportional_bytes(pids))
            shares.append(
                f"{len(pids)} processes; {anonymous_bytes(pids) / _MIB:.1f} MB of it is anonymous"
            )
    measure = "memory of an idle executor"
    return [
        check_median(
            measure, values, Bound("at most", 25), unit="MB", scale=1 / _MIB, note=shares[-1]
        )
    ]


def growth(effort: Effort) -> list[Figure]:
    """Count resources before and after many runs, after a warm-up."""
    runs = effort.pick(10_000, 300)
    return growth_figures(f"{runs} runs", *run_in_fresh_process(__name__, str(runs)))


def growth_figures(what: str, before: dict[str, int], after: dict[str, int]) -> list[Figure]:
    """Return a figure for the growth of each resource in `what`. Only memory may grow a little."""
    figures: list[Figure] = []
    for name in before:
        difference = after[name] - before[name]
        measure, note = f"{what}: growth of {name}", f"{before[name]} before"
        if name.endswith("memory"):
            note = f"{before[name] / _MIB:.1f} MB before; anonymous memory"
            figures.append(
                check_median(
                    measure, [difference], _SETTLED_GROWTH, unit="MB", scale=1 / _MIB, note=note
                )
            )
        else:
            figures.append(check_median(measure, [difference], _NO_GROWTH, note=note))
    return figures


def measure_in_this_process(runs: int) -> list[dict[str, int]]:
    """Run a small block `runs` times, and return the resources before and after."""
    with SandboxCommandLineCodeExecutor() as executor:
        found: list[dict[str, int]] = []
        for count in (_WARM_UP, runs):
            for _ in range(count):
                run_sandboxed(executor, HI)
            time.sleep(_IDLE)
            found.append(count_resources(processes_of(executor), "the executor's"))
    return found


def count_resources(pids: list[int], whose: str) -> dict[str, int]:
    """Count the resources of this process and of the processes `pids`."""
    what, readable = _readable_descriptors([os.getpid(), *pids])
    return {
        "the caller's memory": anonymous_bytes([os.getpid()]),
        f"{whose} memory": anonymous_bytes(pids),
        what: count_descriptors(readable),
        "processes": len(without_zombies(pids)),
        "control groups": count_control_groups(pids),
        "mounts": count_mounts([os.getpid(), *pids]),
        "temporary files": sum(
            len(folders) + len(files) for _, folders, files in os.walk(tempfile.gettempdir())
        ),
    }


def _readable_descriptors(pids: list[int]) -> tuple[str, list[int]]:
    # An unprivileged user cannot read the descriptors of processes in a sandbox.
    if all(os.access(f"/proc/{pid}/fd", os.R_OK) for pid in pids):
        return "descriptors", pids
    return "descriptors of the caller and the server", pids[:2]


if __name__ == "__main__":
    print(json.dumps(measure_in_this_process(int(sys.argv[1]))))
