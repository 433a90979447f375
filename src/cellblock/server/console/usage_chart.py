"""UsageChart: what keys have used on each day, as bars with a part for each key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from ..state.usage import SECONDS_A_DAY, DailyUsage

_MAX_SHOWN = 6  # keys with a colour of their own
_WIDTH = 1000.0  # of a bar of the day with the most


@dataclass(frozen=True)
class Measure:
    """What bars can stand for. `read` returns it of one day of a key."""

    name: str
    label: str
    read: Callable[[DailyUsage], float]
    digits: int = 0


MEASURES = (
    Measure("cpu", "CPU seconds", lambda usage: usage.cpu_seconds, 1),
    Measure("runs", "Runs", lambda usage: usage.runs),
    Measure("time", "Run seconds", lambda usage: usage.run_seconds, 1),
)


@dataclass(frozen=True)
class BarPart:
    """The part of one key of a bar. `colour` is the number of a class of the style sheet."""

    key_name: str
    colour: int
    left: float
    width: float
    amount: str


@dataclass(frozen=True)
class DayBar:
    """The bar of one day."""

    day: date
    parts: list[BarPart]
    total: str


@dataclass(frozen=True)
class KeyTotal:
    """What one key has used on all days together. `colour` as in the bars."""

    key_name: str
    colour: int
    runs: int
    run_seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class UsageChart:
    """The bars of all days, newest first, and the totals of all keys, those with most first."""

    bars: list[DayBar]
    totals: list[KeyTotal]


def usage_chart(
    usage: Sequence[DailyUsage], measure: Measure, first_day: int, last_day: int
) -> UsageChart:
    """Return the chart of these days, which are counted from 1970 on. Keys are told by ID."""
    sums, names = Counter[str](), dict[str, str]()
    for each in usage:
        sums[each.key_id] += measure.read(each)  # pyright: ignore[reportArgumentType] - also of fractions
        names[each.key_id] = each.key_name
    colours = {key: min(number, _MAX_SHOWN) for number, (key, _) in enumerate(sums.most_common())}
    days = dict[int, list[DailyUsage]]()
    for each in usage:
        days.setdefault(each.day, []).append(each)
    largest = max((_sum(each, measure) for each in days.values()), default=0.0)
    bars = [
        _bar(day, days.get(day, []), measure, largest, colours)
        for day in range(last_day, first_day - 1, -1)
    ]
    return UsageChart(bars, [_total(key, names[key], colours[key], usage) for key in colours])


def _bar(
    day: int, usage: list[DailyUsage], measure: Measure, largest: float, colours: dict[str, int]
) -> DayBar:
    parts, left = list[BarPart](), 0.0
    for each in sorted(usage, key=lambda one: colours[one.key_id]):
        amount = measure.read(each)
        width = _WIDTH * amount / largest if largest else 0.0
        text = f"{amount:,.{measure.digits}f}"
        parts.append(BarPart(each.key_name, colours[each.key_id], left, width, text))
        left += width
    total = f"{_sum(usage, measure):,.{measure.digits}f}"
    return DayBar(datetime.fromtimestamp(day * SECONDS_A_DAY, UTC).date(), parts, total)


def _total(key: str, name: str, colour: int, usage: Sequence[DailyUsage]) -> KeyTotal:
    own = [each for each in usage if each.key_id == key]
    return KeyTotal(
        name,
        colour,
        sum(each.runs for each in own),
        sum(each.run_seconds for each in own),
        sum(each.cpu_seconds for each in own),
    )


def _sum(usage: Sequence[DailyUsage], measure: Measure) -> float:
    return sum(map(measure.read, usage))
