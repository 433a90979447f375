"""What an executor holds: when it is idle, and whether it holds more after many runs.

Run as a program, it is the process that makes the runs: one that has done nothing else, with a temporary folder of its own.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time

from cellblock.sync import SandboxCommandLineCodeExecutor

from .figures import Bound, Figure, alone
from .measure import HI, Effort, in_fresh_process, run_sandboxed
from .processes import control_groups, descriptors, mounts, own_bytes, processes_of, proportional_bytes

_MIB = 1 << 20
_WARM_UP = 500
_IDLE = 3.0  # seconds after which an executor has let go of the cells that it does not keep ready
# Allocators and tables settle within this; a leak of 200 bytes a run would not.
_SETTLING = Bound("at most", 2)
_NOTHING = Bound("at most", 0)


def idle(effort: Effort) -> list[Figure]:
    """Add up the memory of all processes of an executor that has run something and has nothing to do."""
    values: list[float] = []
    for _ in range(effort.pick(3, 1)):
        with SandboxCommandLineCodeExecutor() as executor:
            run_sandboxed(executor, HI)
            time.sleep(_IDLE)
            pids = processes_of(executor)
            values.append(proportional_bytes(pids))
            note = f"{len(pids)} processes; {own_bytes(pids) / _MIB:.1f} MB of it is no file's"
    return [
        alone(
            "an idle executor, all its processes (PSS)",
            values,
            Bound("at most", 25),
            unit="MB",
            scale=1 / _MIB,
            note=note,
        )
    ]


def growth(effort: Effort) -> list[Figure]:
    """Count what there is before and after many runs, the first of which only warm up."""
    runs = effort.pick(10_000, 300)
    before, after = in_fresh_process(__name__, str(runs))
    grown = {name: after[name] - before[name] for name in before}
    figures: list[Figure] = []
    for name, difference in grown.items():
        measure, note = f"{runs} runs: growth of {name}", f"{before[name]} before"
        if name.endswith("memory"):
            note = f"{before[name] / _MIB:.1f} MB before; of what is no file's"
            figures.append(alone(measure, [difference], _SETTLING, unit="MB", scale=1 / _MIB, note=note))
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
            found.append(_holdings(executor))
    return found


def _holdings(executor: SandboxCommandLineCodeExecutor) -> dict[str, int]:
    pids = processes_of(executor)
    return {
        "the caller's memory": own_bytes([os.getpid()]),
        "the executor's memory": own_bytes(pids),
        "descriptors": descriptors([os.getpid(), *pids]),
        "processes": len(pids),
        "control groups": control_groups(),
        "mounts": mounts([os.getpid(), *pids]),
        "temporary files": sum(len(folders) + len(files) for _, folders, files in os.walk(tempfile.gettempdir())),
    }


if __name__ == "__main__":
    print(json.dumps(measured_alone(int(sys.argv[1]))))
