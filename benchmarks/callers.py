"""Many callers at once, each in its own thread: runs per second, fairness, correct results."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Bound, Figure, compare_medians
from benchmarks.measure import HI, Effort, interleave, run_plain, run_sandboxed
from cellblock.sync import SandboxCommandLineCodeExecutor

_EXECUTORS = 8
_FEW, _MANY = 8, 64
_SERVERS = 3  # one after another: the speed of servers differs a little
_ROUND_SECONDS = 1.0  # short, so that changes of the machine's speed affect all contenders alike

RunCode = Callable[[int, str], str]  # number of the caller and code -> output


@dataclass(frozen=True)
class CallCounts:
    """What a group of callers achieved: results of each caller, results that were wrong, time."""

    counts: tuple[int, ...]
    wrong_results: int
    seconds: float

    @property
    def rate(self) -> float:
        """Runs per second."""
        return sum(self.counts) / self.seconds

    @property
    def fewest_of_median(self) -> float:
        """Runs of the caller with the fewest runs, relative to the median."""
        return min(self.counts) / max(1, statistics.median(self.counts))

    @property
    def most_of_median(self) -> float:
        """Runs of the caller with the most runs, relative to the median."""
        return max(self.counts) / max(1, statistics.median(self.counts))


def run_callers(callers: int, seconds: float, run_code: RunCode) -> CallCounts:
    """Run code from `callers` threads for `seconds`. Each call prints a text of its own."""
    counts, wrong = [0] * callers, [0] * callers
    started = time.perf_counter()

    def work(caller: int) -> None:
        while time.perf_counter() - started < seconds:
            text = f"{caller} {counts[caller]}"
            wrong[caller] += run_code(caller, f"print({text!r})") != f"{text}\n"
            counts[caller] += 1

    threads = [threading.Thread(target=work, args=(caller,)) for caller in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return CallCounts(tuple(counts), sum(wrong), time.perf_counter() - started)


def eight_callers(effort: Effort) -> list[Figure]:
    """Compare 8 callers of one executor with 8 callers of plain processes."""
    seconds = effort.pick(3, 1)
    with tempfile.TemporaryDirectory() as folder, SandboxCommandLineCodeExecutor() as executor:
        file = Path(folder, "block.py")
        file.write_text(HI, encoding="utf-8")
        values = interleave(
            effort.pick(7, 2),
            {
                "ours": lambda: (
                    run_callers(_FEW, seconds, lambda _, code: run_sandboxed(executor, code)).rate
                ),
                "theirs": lambda: (
                    run_callers(_FEW, seconds, lambda _, code: run_plain(str(file))).rate
                ),
            },
        )
    return [
        compare_medians(
            "8 callers",
            values["ours"],
            values["theirs"],
            Bound("at least", 3),
            unit="runs/s",
        )
    ]


def sixty_four_callers(effort: Effort) -> list[Figure]:
    """Compare 64 callers on one executor, and on several, with 8 callers of one."""
    one_groups: list[CallCounts] = []
    many_groups: list[CallCounts] = []
    values: dict[str, list[float]] = defaultdict(list)
    for _ in range(effort.pick(_SERVERS, 1)):
        for name, rates in _measure_rates(effort, one_groups, many_groups).items():
            values[name] += rates
    few = values["few of one"]
    return [
        _compare_with_few("on one executor", values["one"], few, one_groups),
        _compare_with_few(f"on {_EXECUTORS} executors", values["many"], few, many_groups),
    ]


def _measure_rates(
    effort: Effort, one_groups: list[CallCounts], many_groups: list[CallCounts]
) -> dict[str, list[float]]:
    """Measure the rates of all groups in turn, on new executors, and collect the large groups."""
    with contextlib.ExitStack() as stack:
        executors = [
            stack.enter_context(SandboxCommandLineCodeExecutor()) for _ in range(_EXECUTORS)
        ]

        def run_on(used: Sequence[SandboxCommandLineCodeExecutor]) -> RunCode:
            return lambda caller, code: run_sandboxed(used[caller % len(used)], code)

        def few(used: Sequence[SandboxCommandLineCodeExecutor]) -> float:
            return run_callers(_FEW, _ROUND_SECONDS, run_on(used)).rate

        def many(groups: list[CallCounts], used: Sequence[SandboxCommandLineCodeExecutor]) -> float:
            groups.append(run_callers(_MANY, _ROUND_SECONDS, run_on(used)))
            return groups[-1].rate

        # A different executor in each round, because the speed of servers differs a little.
        for_few, for_many = itertools.cycle(executors), itertools.cycle(executors)
        return interleave(
            effort.pick(_EXECUTORS - 1, 2),
            {
                "few of one": lambda: few([next(for_few)]),
                "one": lambda: many(one_groups, [next(for_many)]),
                "many": lambda: many(many_groups, executors),
            },
        )


def _compare_with_few(
    where: str, rates: list[float], few: list[float], groups: list[CallCounts]
) -> Figure:
    if wrong := sum(each.wrong_results for each in groups):
        raise RuntimeError(f"{wrong} results were those of another caller.")
    fewest = min(each.fewest_of_median for each in groups)
    most = max(each.most_of_median for each in groups)
    return compare_medians(
        f"{_MANY} callers {where}",
        rates,
        few,
        Bound("at least", 0.9),
        unit="runs/s",
        note=f"callers had {fewest:.2f} to {most:.2f} of the median, in the worst round",
    )
