"""Encode pictures as sixels: columns of six pixels, one colour after the other."""

from __future__ import annotations

import io
from collections.abc import Iterator

from PIL import Image

_MAX_WIDTH, _MAX_HEIGHT = 800, 600  # pixels
_COLOURS = 255
_MAX_PIXELS = 40_000_000  # a small file can contain a huge picture


def encode_sixel(data: bytes) -> str:
    """Return the escape sequence for the picture file `data`. Raise `OSError` or `ValueError`."""
    picture = _open(data)
    picture.thumbnail((_MAX_WIDTH, _MAX_HEIGHT))
    indexed = _on_white(picture).quantize(_COLOURS)
    width, height = indexed.size
    palette = indexed.getpalette() or []
    pixels = indexed.tobytes()
    rows = [pixels[start : start + width] for start in range(0, width * height, width)]
    used = sorted(set(pixels))
    colours = "".join(
        f"#{number};2;"
        + ";".join(str(palette[3 * number + part] * 100 // 255) for part in range(3))
        for number in used
    )
    bands = "-".join(_band(rows[top : top + 6]) for top in range(0, height, 6))
    return f'\x1bPq"1;1;{width};{height}{colours}{bands}\x1b\\'


def to_png(data: bytes) -> bytes:
    """Return the picture file `data` as PNG. Raise `OSError` or `ValueError`."""
    buffer = io.BytesIO()
    _open(data).save(buffer, format="PNG")
    return buffer.getvalue()


def _open(data: bytes) -> Image.Image:
    picture = Image.open(io.BytesIO(data))
    width, height = picture.size
    if width * height > _MAX_PIXELS:
        raise ValueError(f"The picture has {width} x {height} pixels, which is too many.")
    return picture


def _on_white(picture: Image.Image) -> Image.Image:
    with_alpha = picture.convert("RGBA")
    white = Image.new("RGBA", with_alpha.size, "white")
    return Image.alpha_composite(white, with_alpha).convert("RGB")


def _band(rows: list[bytes]) -> str:
    """Return six rows of pixels: for each colour, which of the six pixels of a column have it."""
    colours = sorted(set(b"".join(rows)))
    return "$".join(f"#{colour}{''.join(_runs(rows, colour))}" for colour in colours)


def _runs(rows: list[bytes], colour: int) -> Iterator[str]:
    columns = [
        sum((row[x] == colour) << y for y, row in enumerate(rows)) for x in range(len(rows[0]))
    ]
    start = 0
    for x in range(1, len(columns) + 1):
        if x == len(columns) or columns[x] != columns[start]:
            count, sixel = x - start, chr(63 + columns[start])
            yield f"!{count}{sixel}" if count > 3 else sixel * count
            start = x
