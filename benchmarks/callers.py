"""Many callers at once, each in a thread of its own: runs per second, who waits, and whose result it is."""

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

from benchmarks.figures import Bound, Figure, alone, beside
from benchmarks.measure import HI, Effort, interleave, run_plain, run_sandboxed
from cellblock.sync import SandboxCommandLineCodeExecutor

_EXECUTORS = 8
_FEW, _MANY = 8, 64
_SERVERS = 4  # one after the other: each is a little quicker or slower than the next for as long as it lives
_TURN = 1.0  # seconds of each crowd in turn; of longer ones a shared machine would have been quicker for one than the next

Ask = Callable[[int, str], str]  # the caller's number, and the code that it wants to have run


@dataclass(frozen=True)
class Crowd:
    """What callers got within a time: how many results each, how many of those were not theirs, and the seconds."""

    counts: tuple[int, ...]
    wrong: int
    seconds: float

    @property
    def rate(self) -> float:
        """Runs per second."""
        return sum(self.counts) / self.seconds

    @property
    def fewest(self) -> float:
        """What the caller with the fewest runs got, as a share of the median."""
        return min(self.counts) / max(1, statistics.median(self.counts))

    @property
    def most(self) -> float:
        """What the caller with the most runs got, as a multiple of the median."""
        return max(self.counts) / max(1, statistics.median(self.counts))


def crowd(callers: int, seconds: float, ask: Ask) -> Crowd:
    """Have `callers` ask again and again for `seconds`. Each wants its own text printed."""
    counts, wrong = [0] * callers, [0] * callers
    started = time.perf_counter()

    def work(caller: int) -> None:
        while time.perf_counter() - started < seconds:
            text = f"{caller} {counts[caller]}"
            wrong[caller] += ask(caller, f"print({text!r})") != f"{text}\n"
            counts[caller] += 1

    threads = [threading.Thread(target=work, args=(caller,)) for caller in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Crowd(tuple(counts), sum(wrong), time.perf_counter() - started)


def eight(effort: Effort) -> list[Figure]:
    """Compare 8 callers of one executor with 8 callers of plain processes."""
    seconds = effort.pick(3, 1)
    with tempfile.TemporaryDirectory() as folder, SandboxCommandLineCodeExecutor() as executor:
        file = Path(folder, "block.py")
        file.write_text(HI, encoding="utf-8")
        values = interleave(
            effort.pick(7, 2),
            {
                "ours": lambda: (
                    crowd(_FEW, seconds, lambda _, code: run_sandboxed(executor, code)).rate
                ),
                "theirs": lambda: crowd(_FEW, seconds, lambda _, code: run_plain(str(file))).rate,
            },
        )
    return [
        beside(
            "8 callers at once",
            values["ours"],
            values["theirs"],
            Bound("at least", 3),
            unit="runs/s",
        )
    ]


def sixty_four(effort: Effort) -> list[Figure]:
    """Compare 64 callers, of one executor and of many, with 8 callers of one, and of the same many."""
    one_crowds: list[Crowd] = []
    many_crowds: list[Crowd] = []
    values: dict[str, list[float]] = defaultdict(list)
    for _ in range(effort.pick(_SERVERS, 1)):
        for name, rates in _turns(effort, one_crowds, many_crowds).items():
            values[name] += rates
    on_one, on_many = (
        f"{_MANY} callers on one executor",
        f"{_MANY} callers on {_EXECUTORS} executors",
    )
    return [
        _beside_few(on_one, values["one"], values["few of one"], "of the same"),
        *_verdicts(on_one, one_crowds),
        _beside_few(on_many, values["many"], values["few of many"], "of the same"),
        _beside_few(on_many, values["many"], values["few of one"], "of one executor"),
        *_verdicts(on_many, many_crowds),
    ]


def _turns(
    effort: Effort, one_crowds: list[Crowd], many_crowds: list[Crowd]
) -> dict[str, list[float]]:
    """Give the rates of all crowds in turn, of executors that are new; note what each caller of the large ones got."""
    with contextlib.ExitStack() as stack:
        executors = [
            stack.enter_context(SandboxCommandLineCodeExecutor()) for _ in range(_EXECUTORS)
        ]

        def asked_of(used: Sequence[SandboxCommandLineCodeExecutor]) -> Ask:
            return lambda caller, code: run_sandboxed(used[caller % len(used)], code)

        def few(used: Sequence[SandboxCommandLineCodeExecutor]) -> float:
            return crowd(_FEW, _TURN, asked_of(used)).rate

        def kept(crowds: list[Crowd], used: Sequence[SandboxCommandLineCodeExecutor]) -> float:
            crowds.append(crowd(_MANY, _TURN, asked_of(used)))
            return crowds[-1].rate

        # Another one of them each round: one is a little quicker than the next, as servers are.
        for_few, for_many = itertools.cycle(executors), itertools.cycle(executors)
        return interleave(
            effort.pick(_EXECUTORS - 1, 2),
            {
                "few of one": lambda: few([next(for_few)]),
                "one": lambda: kept(one_crowds, [next(for_many)]),
                "few of many": lambda: few(executors),
                "many": lambda: kept(many_crowds, executors),
            },
        )


def _beside_few(where: str, rates: list[float], few: list[float], whose: str) -> Figure:
    return beside(
        where,
        rates,
        few,
        Bound("at least", 1),
        unit="runs/s",
        note=f"beside {_FEW} callers {whose}",
    )


def _verdicts(where: str, crowds: list[Crowd]) -> list[Figure]:
    return [
        alone(
            f"{where}: fewest runs / median, worst round",
            [min(one.fewest for one in crowds)],
            Bound("at least", 0.5),
        ),
        alone(
            f"{where}: most runs / median, worst round",
            [max(one.most for one in crowds)],
            Bound("at most", 2),
        ),
        alone(
            f"{where}: results of somebody else",
            [sum(one.wrong for one in crowds)],
            Bound("at most", 0),
        ),
    ]
