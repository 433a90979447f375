"""One caller, one call at a time: time and CPU of a fresh sandboxed process beside a plain one."""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable

from benchmarks.cpu import CpuMeter, cpu_meter
from benchmarks.figures import Bound, Figure, beside
from benchmarks.measure import HI, Effort, NotMeasured, interleave, pair, times

PANDAS = """\
import numpy as np
import pandas as pd

frame = pd.DataFrame({"key": np.arange(1000) % 7, "value": np.arange(1000.0)})
print(frame.groupby("key")["value"].sum())
"""
_REFILL = 0.05  # seconds in which what a run leaves to be done is done, so that it counts as well


def spaced(effort: Effort) -> list[Figure]:
    """Call with 20 ms between, when cells are ready."""
    with pair(HI) as both:
        values = interleave(
            effort.pick(20, 5),
            {
                "ours": lambda: statistics.median(times(both.ours, 15, pause=0.02)),
                "theirs": lambda: statistics.median(times(both.theirs, 15, pause=0.02)),
            },
        )
    measure = "print('hi'), one call at a time with 20 ms between"
    return [
        beside(
            measure, values["ours"], values["theirs"], Bound("at most", 0.15), unit="ms", scale=1000
        )
    ]


def back_to_back(effort: Effort) -> list[Figure]:
    """Call again at once: the mean of a batch, in which making the next cell counts as well."""
    with pair(HI) as both:
        values = interleave(
            effort.pick(20, 5),
            {
                "ours": lambda: statistics.mean(times(both.ours, 40)),
                "theirs": lambda: statistics.mean(times(both.theirs, 40)),
            },
        )
    measure = "print('hi'), back to back"
    return [
        beside(
            measure, values["ours"], values["theirs"], Bound("at most", 0.35), unit="ms", scale=1000
        )
    ]


def preloaded(effort: Effort) -> list[Figure]:
    """Use numpy and pandas, preloaded, beside a plain process that imports them."""
    for name in ("numpy", "pandas"):
        if importlib.util.find_spec(name) is None:
            raise NotMeasured(f"{name} is not installed: the extra `bench` brings it.")
    with pair(PANDAS, preload=("numpy", "pandas")) as both:
        values = interleave(
            effort.pick(15, 3),
            {
                "ours": lambda: statistics.median(times(both.ours, 5, pause=0.02)),
                "theirs": lambda: statistics.median(times(both.theirs, 1, pause=0.02)),
            },
        )
    measure = "numpy + pandas imported and a groupby, preloaded"
    return [
        beside(
            measure, values["ours"], values["theirs"], Bound("at most", 0.04), unit="ms", scale=1000
        )
    ]


def cpu(effort: Effort) -> list[Figure]:
    """Add up the CPU of the caller, the server, the zygote and all cells."""
    with cpu_meter() as meter, pair(HI) as both:
        values = interleave(
            effort.pick(10, 3),
            {
                "ours": lambda: _cpu_per_call(meter, both.ours),
                "theirs": lambda: _cpu_per_call(meter, both.theirs),
            },
        )
    measure = "CPU per run, of everything"
    ours, theirs, bound = values["ours"], values["theirs"], Bound("at most", 0.4)
    return [
        beside(
            measure, ours, theirs, bound, unit="ms", scale=1000, note=f"measured by {meter.source}"
        )
    ]


def _cpu_per_call(meter: CpuMeter, call: Callable[[], object]) -> float:
    count = 50
    before = meter.seconds()
    times(call, count)
    time.sleep(_REFILL)
    return (meter.seconds() - before) / count
