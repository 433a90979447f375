"""One caller, one call at a time: a fresh sandboxed process compared with a plain one."""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable

from benchmarks import sandlock
from benchmarks.cpu import CpuMeter, cpu_meter
from benchmarks.figures import Bound, Figure, compare_medians
from benchmarks.measure import HI, Call, Effort, NotMeasured, interleave, paired_runs, time_calls

PANDAS = """\
import numpy as np
import pandas as pd

frame = pd.DataFrame({"key": np.arange(1000) % 7, "value": np.arange(1000.0)})
print(frame.groupby("key")["value"].sum())
"""
_SETTLE_SECONDS = 0.05  # background work after a run ends in this time, and is counted too


def spaced(effort: Effort) -> list[Figure]:
    """Run blocks with pauses of 20 ms, so that a cell is ready for each."""
    return _beside_others(
        "`print('hi')`, 20 ms between",
        Bound("at most", 0.2),
        effort,
        lambda call: statistics.median(time_calls(call, 15, pause=0.02)),
    )


def back_to_back(effort: Effort) -> list[Figure]:
    """Run blocks back to back: the mean of a batch, which includes the creation of cells."""
    return _beside_others(
        "`print('hi')`, back to back",
        Bound("at most", 0.25),
        effort,
        lambda call: statistics.mean(time_calls(call, 40)),
    )


def _beside_others(
    title: str, bound: Bound, effort: Effort, measure: Callable[[Call], float]
) -> list[Figure]:
    """Compare Cellblock and sandlock, if it is installed, with a plain process of a file."""
    with paired_runs(HI) as both, sandlock.runner(HI) as other:
        contenders = {"ours": both.ours, "theirs": both.theirs, "sandlock": other}
        values = interleave(
            effort.pick(20, 5),
            {
                name: lambda call=call: measure(call)
                for name, call in contenders.items()
                if call is not None
            },
        )
    plain, name = values["theirs"], f"sandlock, {title}"
    figures = [compare_medians(title, values["ours"], plain, bound, unit="ms", scale=1000)]
    if other is None:
        return [*figures, Figure(name, note=sandlock.MISSING)]
    more = compare_medians(name, values["sandlock"], plain, None, unit="ms", scale=1000)
    return [*figures, more]


def preloaded(effort: Effort) -> list[Figure]:
    """Use preloaded numpy and pandas, compared with a plain process that imports them."""
    for name in ("numpy", "pandas"):
        if importlib.util.find_spec(name) is None:
            raise NotMeasured(f"{name} is not installed: install the extra `bench`.")
    with paired_runs(PANDAS, preload=("numpy", "pandas")) as both:
        values = interleave(
            effort.pick(15, 3),
            {
                "ours": lambda: statistics.median(time_calls(both.ours, 5, pause=0.02)),
                "theirs": lambda: statistics.median(time_calls(both.theirs, 1, pause=0.02)),
            },
        )
    measure = "pandas groupby, with `preload`"
    return [
        compare_medians(
            measure, values["ours"], values["theirs"], Bound("at most", 0.05), unit="ms", scale=1000
        )
    ]


def cpu(effort: Effort) -> list[Figure]:
    """Measure the CPU time of the caller, the server, the zygote and all cells."""
    with cpu_meter() as meter, paired_runs(HI) as both:
        values = interleave(
            effort.pick(10, 3),
            {
                "ours": lambda: _cpu_per_call(meter, both.ours),
                "theirs": lambda: _cpu_per_call(meter, both.theirs),
            },
        )
    measure = "CPU time of all processes"
    ours, theirs, bound = values["ours"], values["theirs"], Bound("at most", 0.4)
    return [
        compare_medians(
            measure, ours, theirs, bound, unit="ms", scale=1000, note=f"measured by {meter.source}"
        )
    ]


def _cpu_per_call(meter: CpuMeter, call: Callable[[], object]) -> float:
    count = 50
    before = meter.seconds()
    time_calls(call, count)
    time.sleep(_SETTLE_SECONDS)
    return (meter.seconds() - before) / count
