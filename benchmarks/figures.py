"""Figures: what was measured, what it must be, and how a reader sees it. No measuring happens here."""

from __future__ import annotations

import math
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

WIDTHS = (62, 15, 15, 14, 13)
TITLES = ("measure", "ours", "theirs", "ratio", "must be")
_OF_A_MEDIAN = (
    1.2533 * 1.4826
)  # its standard error times the root of the number, by the median absolute deviation


@dataclass(frozen=True)
class Bound:
    """What a number must be."""

    kind: Literal["at most", "at least"]
    value: float

    def holds(self, number: float) -> bool:
        """Tell whether `number` is what it must be."""
        return number <= self.value if self.kind == "at most" else number >= self.value

    def __str__(self) -> str:
        return f"{'≤' if self.kind == 'at most' else '≥'} {self.value:g}"


@dataclass(frozen=True)
class Figure:
    """One line of the table: medians, the rounds that they come from, and the verdict.

    `ratio` is ours / theirs where something stands beside; then the bound is on it, and otherwise on `ours`.
    `noise` is the standard error of that ratio, as its rounds show it: a bound nearer than twice this could go either way.
    `ok` is `None` where it could not be measured, and `note` says why.
    """

    measure: str
    unit: str = ""
    must_be: str = ""
    ok: bool | None = None
    ours: float | None = None
    theirs: float | None = None
    ratio: float | None = None
    noise: float | None = None
    ours_rounds: list[float] = field(default_factory=list[float])
    theirs_rounds: list[float] = field(default_factory=list[float])
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Give the figure as JSON values, with the number of rounds."""
        return {**asdict(self), "rounds": len(self.ours_rounds)}


def beside(
    measure: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    bound: Bound,
    *,
    unit: str,
    scale: float = 1,
    note: str = "",
) -> Figure:
    """Compare the medians of two that ran in turn. `scale` turns what was measured into `unit`."""
    ours, theirs = [value * scale for value in ours], [value * scale for value in theirs]
    median, other = statistics.median(ours), statistics.median(theirs)
    ratio = median / other
    must_be = f"{bound} ×"
    return Figure(
        measure,
        unit,
        must_be,
        bound.holds(ratio),
        median,
        other,
        ratio,
        _noise(ours, theirs),
        ours,
        theirs,
        note,
    )


def _noise(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Give the standard error of the median ratio of rounds that ran in turn; `None` where there was one alone."""
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    if len(ratios) < 2:
        return None
    middle = statistics.median(ratios)
    return (
        _OF_A_MEDIAN
        * statistics.median(abs(ratio - middle) for ratio in ratios)
        / math.sqrt(len(ratios))
    )


def alone(
    measure: str,
    values: Sequence[float],
    bound: Bound,
    *,
    unit: str = "",
    scale: float = 1,
    note: str = "",
) -> Figure:
    """Hold the median of `values` against `bound`, which is in `unit`."""
    values = [value * scale for value in values]
    median = statistics.median(values)
    must_be = f"{bound} {unit}".rstrip()
    return Figure(
        measure, unit, must_be, bound.holds(median), ours=median, ours_rounds=values, note=note
    )


def line(figure: Figure) -> str:
    """Give a figure as lines of the table: the numbers, and below them the note."""
    values = (
        figure.measure,
        _amount(figure.ours, figure.unit),
        _amount(figure.theirs, figure.unit),
        _ratio(figure),
        figure.must_be,
    )
    verdict = {True: "ok", False: "NOT", None: "not measured"}[figure.ok]
    note = f"\n    {figure.note}" if figure.note else ""
    return f"{_columns(values)}  {verdict}{note}"


def head() -> str:
    """Give the first line of the table."""
    return f"{_columns(TITLES)}  ok"


def machine() -> dict[str, Any]:
    """Give what a reader must know of the machine to compare numbers."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "user": "root" if os.geteuid() == 0 else "plain",
        "load_before": os.getloadavg()[0],
    }


def _columns(values: Sequence[str]) -> str:
    texts = [values[0].ljust(WIDTHS[0])]
    texts += [value.rjust(width) for value, width in zip(values[1:], WIDTHS[1:], strict=True)]
    return "  ".join(texts)


def _ratio(figure: Figure) -> str:
    if figure.ratio is None:
        return ""
    return (
        f"{figure.ratio:.3f}"
        if figure.noise is None
        else f"{figure.ratio:.3f} ± {figure.noise:.3f}"
    )


def _amount(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    return f"{value:.{0 if value >= 1000 or value == int(value) else 2}f} {unit}".rstrip()
