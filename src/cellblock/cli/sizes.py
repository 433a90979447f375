"""Parse and format sizes such as 512M."""

from __future__ import annotations

import re

from ..limits import GIB, KIB, MIB

_UNITS = {"": 1, "k": KIB, "m": MIB, "g": GIB}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?) ?([kmg]?)(?:i?b)?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Return the number of bytes in a text such as `512M`, `1.5 GiB`, `2gb` or `1048576`.

    Units are powers of 1024. Raise `ValueError` for anything else.
    """
    match = _SIZE.fullmatch(text.strip())
    size = int(float(match[1]) * _UNITS[match[2].lower()]) if match else 0
    if size < 1:
        raise ValueError(f"{text!r} is not a size such as 512M or 2G")
    return size


def format_size(size: int) -> str:
    """Return `size` bytes as text with a unit."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} byte{'' if size == 1 else 's'}"


def exact_size(size: int) -> str:
    """Return `size` bytes as the shortest text that `parse_size` reads, such as 512M."""
    for unit, name in ((GIB, "G"), (MIB, "M"), (KIB, "K")):
        if size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)
