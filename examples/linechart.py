"""linechart: draw lines into an SVG file. The library that `chat_stock_plot.py` must install."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

_WIDTH, _HEIGHT, _MARGIN = 640, 360, 40
_COLORS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")


def save_chart(path: str, title: str, lines: Mapping[str, Sequence[float]]) -> None:
    """Write a chart to `path`. `lines` are the values of each line by its name."""
    values = [value for line in lines.values() for value in line]
    low, high = min(values), max(values)
    shapes = [f'<text x="{_MARGIN}" y="24" font-size="18">{title}</text>']
    for number, (name, line) in enumerate(lines.items()):
        color = _COLORS[number % len(_COLORS)]
        points = " ".join(
            f"{_position(place, 0, len(line) - 1, _WIDTH):.1f},"
            f"{_HEIGHT - _position(value, low, high, _HEIGHT):.1f}"
            for place, value in enumerate(line)
        )
        shapes += [
            f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>',
            f'<text x="{_MARGIN}" y="{48 + 18 * number}" fill="{color}">{name}</text>',
        ]
    size = f'width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif"'
    picture = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    Path(path).write_text("\n".join([picture, *shapes, "</svg>", ""]))


def _position(value: float, low: float, high: float, size: int) -> float:
    """Return the distance of `value` from the edge of a picture of `size` pixels."""
    share = (value - low) / (high - low) if high > low else 0.5
    return _MARGIN + share * (size - 2 * _MARGIN)
