"""UsageChart: what keys have used on each day, as columns with a part for each key."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from ..state.usage import SECONDS_A_DAY, DailyUsage

_MAX_SHOWN = 6  # keys with a colour of their own
_MAX_LABELS = 8
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 576.0, 264.0, 56.0, 16.0, 12.0, 236.0


@dataclass(frozen=True)
class Measure:
    """What columns can stand for. `read` returns it of one day of a key."""

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
class ColumnPart:
    """The part of one key of a column. `colour` is the number of a class of the style sheet."""

    key_name: str
    colour: int
    top: float
    height: float
    amount: str


@dataclass(frozen=True)
class DayColumn:
    """The column of one day. `label` is the text below it; "" if its neighbours need the room."""

    day: date
    left: float
    width: float
    label: str
    parts: list[ColumnPart]
    total: str


@dataclass(frozen=True)
class Tick:
    """A line of the picture, with the amount for which it stands."""

    top: float
    label: str


@dataclass(frozen=True)
class KeyTotal:
    """What one key has used on all days together. `colour` as in the columns."""

    key_name: str
    colour: int
    runs: int
    run_seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class UsageChart:
    """A picture of `width` times `height`: the columns of all days, oldest first, and the ticks.

    totals   those of all keys, those with most first
    left, bottom   where the columns and the ticks begin
    """

    columns: list[DayColumn]
    ticks: list[Tick]
    totals: list[KeyTotal]
    width: float = _WIDTH
    height: float = _HEIGHT
    left: float = _LEFT
    bottom: float = _BOTTOM


def usage_chart(
    usage: Sequence[DailyUsage], measure: Measure, first_day: int, last_day: int
) -> UsageChart:
    """Return the chart of these days, which are counted from 1970 on. Keys are told by ID."""
    sums, names = Counter[str](), dict[str, str]()
    for each in usage:
        sums[each.key_id] += measure.read(each)  # pyright: ignore[reportArgumentType] - also of fractions
        names[each.key_id] = each.key_name
    colours = {key: min(number, _MAX_SHOWN) for number, (key, _) in enumerate(sums.most_common())}
    days = {day: list[DailyUsage]() for day in range(first_day, last_day + 1)}
    for each in usage:
        days.setdefault(each.day, []).append(each)
    step, count = _scale(max(_sum(each, measure) for each in days.values()), measure)
    most, room = step * count, (_WIDTH - _LEFT - _RIGHT) / len(days)
    labelled = math.ceil(len(days) / _MAX_LABELS)
    columns = list[DayColumn]()
    for number, (day, used) in enumerate(days.items()):
        at = datetime.fromtimestamp(day * SECONDS_A_DAY, UTC).date()
        label = f"{at:%m-%d}" if (len(days) - 1 - number) % labelled == 0 else ""
        parts = list(_parts(used, measure, most, colours))
        total = f"{_sum(used, measure):,.{measure.digits}f}"
        left, width = _LEFT + room * (number + 0.1), room * 0.8
        columns.append(DayColumn(at, left, width, label, parts, total))
    ticks = [Tick(_top(step * each, most), f"{step * each:,.10g}") for each in range(count + 1)]
    totals = [_total(key, names[key], colours[key], usage) for key in colours]
    return UsageChart(columns, ticks, totals)


def _scale(most: float, measure: Measure) -> tuple[float, int]:
    """Return a round step and how many of them reach `most`: at most five."""
    rough = max((most or 1.0) / 5, 0.0 if measure.digits else 1.0)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * each for each in (1, 2, 5, 10) if power * each >= rough * (1 - 1e-9))
    return step, max(1, math.ceil(most / step * (1 - 1e-9)))


def _top(amount: float, most: float) -> float:
    return _BOTTOM - (_BOTTOM - _TOP) * amount / most


def _parts(
    used: list[DailyUsage], measure: Measure, most: float, colours: dict[str, int]
) -> Iterator[ColumnPart]:
    below = 0.0
    for each in sorted(used, key=lambda one: colours[one.key_id]):
        amount = measure.read(each)
        top, bottom = _top(below + amount, most), _top(below, most)
        text = f"{amount:,.{measure.digits}f}"
        yield ColumnPart(each.key_name, colours[each.key_id], top, bottom - top, text)
        below += amount


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
