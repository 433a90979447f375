"""Figures: measured values, their bounds, and the table that shows them. Measures nothing."""

from __future__ import annotations

import math
import os
import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

WIDTHS = (76, 15, 15, 14, 13)
TITLES = ("measure", "ours", "theirs", "ratio", "must be")
# Standard error of a median = this factor * median absolute deviation / sqrt(number of values).
_MEDIAN_ERROR_FACTOR = 1.2533 * 1.4826


@dataclass(frozen=True)
class Bound:
    """The upper or lower bound of a figure."""

    kind: Literal["at most", "at least"]
    value: float

    def holds(self, number: float) -> bool:
        """Return True if `number` satisfies the bound."""
        return number <= self.value if self.kind == "at most" else number >= self.value

    def __str__(self) -> str:
        return f"{'≤' if self.kind == 'at most' else '≥'} {self.value:g}"


@dataclass(frozen=True)
class Figure:
    """One line of the table: medians, the values of all rounds, and the verdict.

    `row` is the option that measures it. `ours` is Cellblock and `theirs` the program it is
    compared with. `ratio` is ours / theirs, and the bound applies to it; without a comparison, the
    bound applies to `ours`. `noise` is the standard error of the ratio: within twice this distance
    of the bound, the verdict is uncertain. `ok` is None if there is no bound, or if the figure
    could not be measured, and `note` says why.
    """

    measure: str
    row: str = ""
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
        """Return the figure as JSON values, with the number of rounds."""
        return {**asdict(self), "rounds": len(self.ours_rounds)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Figure:
        """Return the figure of these JSON values."""
        return cls(**{name: value for name, value in values.items() if name != "rounds"})


def compare_medians(
    measure: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    bound: Bound | None,
    *,
    unit: str,
    scale: float = 1,
    note: str = "",
) -> Figure:
    """Compare the medians of two contenders that took turns. `scale` converts values to `unit`.

    `bound` is that of the ratio.
    """
    figure = _figure(measure, ours, theirs, unit, scale, note)
    if bound is None:
        return figure
    assert figure.ratio is not None
    return replace(figure, must_be=f"{bound} ×", ok=bound.holds(figure.ratio))


def check_median(
    measure: str,
    values: Sequence[float],
    bound: Bound | None,
    *,
    unit: str = "",
    scale: float = 1,
    note: str = "",
) -> Figure:
    """Check the median of `values` against `bound`, which is in `unit`."""
    figure = _figure(measure, values, (), unit, scale, note)
    if bound is None:
        return figure
    assert figure.ours is not None
    return replace(figure, must_be=f"{bound} {unit}".rstrip(), ok=bound.holds(figure.ours))


def _figure(
    measure: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    unit: str,
    scale: float,
    note: str,
) -> Figure:
    mine, others = [value * scale for value in ours], [value * scale for value in theirs]
    median = statistics.median(mine)
    figure = Figure(
        measure, unit=unit, ours=median, ours_rounds=mine, theirs_rounds=others, note=note
    )
    if not others:
        return figure
    other = statistics.median(others)
    return replace(figure, theirs=other, ratio=median / other, noise=_noise(mine, others))


def _noise(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Return the standard error of the median ratio of the rounds; None for a single round."""
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    if len(ratios) < 2:
        return None
    middle = statistics.median(ratios)
    return (
        _MEDIAN_ERROR_FACTOR
        * statistics.median(abs(ratio - middle) for ratio in ratios)
        / math.sqrt(len(ratios))
    )


def format_figure(figure: Figure) -> str:
    """Return the figure as a line of the table, and a second line with the note if there is one."""
    values = (
        figure.measure,
        format_amount(figure.ours, figure.unit),
        format_amount(figure.theirs, figure.unit),
        format_ratio(figure),
        figure.must_be,
    )
    verdict = {True: "ok", False: "NOT", None: "not measured" if figure.ours is None else ""}[
        figure.ok
    ]
    note = f"\n    {figure.note}" if figure.note else ""
    return f"{_format_columns(values)}  {verdict}{note}"


def table_header() -> str:
    """Return the first line of the table."""
    return f"{_format_columns(TITLES)}  ok"


def machine_info() -> dict[str, Any]:
    """Return the facts about this machine that a reader needs to compare figures."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release().partition("-")[0],
        "python": platform.python_version(),
        "user": "root" if os.geteuid() == 0 else "plain",
        "load_before": round(os.getloadavg()[0], 1),
    }


def format_ratio(figure: Figure) -> str:
    """Return the ratio with its standard error, or nothing if there is none."""
    if figure.ratio is None:
        return ""
    return (
        f"{figure.ratio:.3f}"
        if figure.noise is None
        else f"{figure.ratio:.3f} ± {figure.noise:.3f}"
    )


def format_amount(value: float | None, unit: str) -> str:
    """Return a value with its unit, or nothing if there is none."""
    if value is None:
        return ""
    decimals = 0 if value >= 100 or value == int(value) else 1 if value >= 10 else 2
    return f"{value:.{decimals}f} {unit}".rstrip()


def _format_columns(values: Sequence[str]) -> str:
    texts = [values[0].ljust(WIDTHS[0])]
    texts += [value.rjust(width) for value, width in zip(values[1:], WIDTHS[1:], strict=True)]
    return "  ".join(texts)
