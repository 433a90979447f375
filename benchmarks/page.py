"""The table of docs/performance.md: the figures of several users, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.figures import Figure, format_amount, format_ratio

FIRST, LAST = "<!-- figures: python -m benchmarks --page FILE -->", "<!-- end of figures -->"


def markdown_table(users: Mapping[str, Sequence[Figure]]) -> str:
    """Return a Markdown table with a row for each measure, and two columns for each user."""
    found = {name: {each.measure: each for each in figures} for name, figures in users.items()}
    head = ["", "limit", *(title for name in users for title in (name, ""))]
    lines = [head, ["---"] * len(head)]
    for measure in dict.fromkeys(measure for figures in found.values() for measure in figures):
        rows = [figures.get(measure) or Figure(measure) for figures in found.values()]
        limit = next((row.must_be for row in rows if row.must_be), "")
        lines.append([measure, limit, *(cell for row in rows for cell in _cells(row))])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def replace_table(page: Path, text: str) -> None:
    """Write `text` between the two comments of a page. Raise `ValueError` if it has none."""
    before, first, rest = page.read_text(encoding="utf-8").partition(FIRST)
    _, last, after = rest.partition(LAST)
    if not (first and last):
        raise ValueError(f"{page} has no comments {FIRST!r} and {LAST!r}.")
    page.write_text(f"{before}{first}\n\n{text}\n{last}{after}", encoding="utf-8")


def _cells(figure: Figure) -> tuple[str, str]:
    """Return what was measured, and whether the bound is met."""
    if figure.ours is None:
        return figure.note or "not measured", ""
    value, theirs = (format_amount(each, figure.unit) for each in (figure.ours, figure.theirs))
    if theirs:
        ratio = "" if figure.must_be.endswith(figure.unit) else f"{format_ratio(figure)}: "
        value = f"{ratio}{value} / {theirs}"
    return value, {True: "met", False: "**missed**", None: ""}[figure.ok]
