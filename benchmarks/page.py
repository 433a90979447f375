"""The table of docs/performance.md: the figures of several users, side by side."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from benchmarks.figures import Figure, format_amount

FIRST, LAST = "<!-- figures: python -m benchmarks --page FILE -->", "<!-- end of figures -->"


def markdown_table(
    groups: Mapping[str, Collection[str]], users: Mapping[str, Sequence[Figure]]
) -> str:
    """Return a Markdown table with a line for each measure, and two columns for each user.

    `groups` has the rows below each title.
    """
    head = ["", "limit", *(title for name in users for title in (name, ""))]
    lines = [head, ["---"] * len(head)]
    for title, rows in groups.items():
        found = {
            name: {each.measure: each for each in figures if each.row in rows}
            for name, figures in users.items()
        }
        measures = dict.fromkeys(measure for each in found.values() for measure in each)
        if measures:
            lines.append([f"**{title}**", *[""] * (len(head) - 1)])
        for measure in measures:
            figures = [each.get(measure, Figure(measure)) for each in found.values()]
            limit = next((each.must_be for each in figures if each.must_be), "")
            lines.append([measure, limit, *(cell for each in figures for cell in _cells(each))])
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
        return "not measured", ""
    value = format_amount(figure.ours, figure.unit)
    if figure.ratio is not None:
        value = f"{figure.ratio:.{3 if figure.ratio < 0.1 else 2}f} × ({value})"
    return value, {True: "met", False: "missed", None: ""}[figure.ok]
