"""What an executor holds: when it is idle, and whether it holds more after many runs.

Run as a program, it is the process that makes the runs: one that has done nothing else, with a temporary folder of its own.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time

from benchmarks.figures import Bound, Figure, alone
from benchmarks.measure import HI, Effort, in_fresh_process, run_sandboxed
from benchmarks.processes import (
    control_groups,
    descriptors,
    living,
    mounts,
    own_bytes,
    processes_of,
    proportional_bytes,
)
from cellblock.sync import SandboxCommandLineCodeExecutor

_MIB = 1 << 20
_WARM_UP = 500
_IDLE = 12.0  # seconds after which an executor has let go of the cells that it does not keep ready
# Allocators and tables settle within this; a leak of 200 bytes a run would not.
_SETTLING = Bound("at most", 2)
_NOTHING = Bound("at most", 0)


def idle(effort: Effort) -> list[Figure]:
    """Add up the memory of all processes of an executor that has run something and has nothing to do."""
    values: list[float] = []
    shares: list[str] = []
    for _ in range(effort.pick(3, 1)):
        with SandboxCommandLineCodeExecutor() as executor:
            run_sandboxed(executor, HI)
            time.sleep(_IDLE)
            pids = processes_of(executor)
            values.append(proportional_bytes(pids))
            shares.append(
                f"{len(pids)} processes; {own_bytes(pids) / _MIB:.1f} MB of it is no file's"
            )
    measure = "an idle executor, all its processes (PSS)"
    return [
        alone(measure, values, Bound("at most", 25), unit="MB", scale=1 / _MIB, note=shares[-1])
    ]


def growth(effort: Effort) -> list[Figure]:
    """Count what there is before and after many runs, the first of which only warm up."""
    runs = effort.pick(10_000, 300)
    return grown(f"{runs} runs", *in_fresh_process(__name__, str(runs)))


def grown(what: str, before: dict[str, int], after: dict[str, int]) -> list[Figure]:
    """Give what `what` has made grow, a figure each: it must be nothing, or, of memory, what settles."""
    figures: list[Figure] = []
    for name in before:
        difference = after[name] - before[name]
        measure, note = f"{what}: growth of {name}", f"{before[name]} before"
        if name.endswith("memory"):
            note = f"{before[name] / _MIB:.1f} MB before; of what is no file's"
            figures.append(
                alone(measure, [difference], _SETTLING, unit="MB", scale=1 / _MIB, note=note)
            )
        else:
            figures.append(alone(measure, [difference], _NOTHING, note=note))
    return figures


def measured_alone(runs: int) -> list[dict[str, int]]:
    """Run a small block `runs` times, and give what there was before and after."""
    with SandboxCommandLineCodeExecutor() as executor:
        found: list[dict[str, int]] = []
        for count in (_WARM_UP, runs):
            for _ in range(count):
                run_sandboxed(executor, HI)
            time.sleep(_IDLE)
            found.append(holdings(processes_of(executor), "the executor's"))
    return found


def holdings(pids: list[int], whose: str) -> dict[str, int]:
    """Count what this process and the processes `pids` hold: memory, descriptors, processes, groups, mounts, files."""
    what, readable = _readable([os.getpid(), *pids])
    return {
        "the caller's memory": own_bytes([os.getpid()]),
        f"{whose} memory": own_bytes(pids),
        what: descriptors(readable),
        "processes": len(living(pids)),
        "control groups": control_groups(pids),
        "mounts": mounts([os.getpid(), *pids]),
        "temporary files": sum(
            len(folders) + len(files) for _, folders, files in os.walk(tempfile.gettempdir())
        ),
    }


def _readable(pids: list[int]) -> tuple[str, list[int]]:
    # What sits in a sandbox of a plain user does not let him look into it.
    if all(os.access(f"/proc/{pid}/fd", os.R_OK) for pid in pids):
        return "descriptors", pids
    return "descriptors of the caller and the server", pids[:2]


if __name__ == "__main__":
    print(json.dumps(measured_alone(int(sys.argv[1]))))
