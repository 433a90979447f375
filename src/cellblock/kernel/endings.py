"""Describe the end of a cell in the words of a notebook. Pure: no I/O."""

from __future__ import annotations

import re

from ..events import Ended
from ..limits import GIB, KIB, MIB, Limits

_BLOCK = re.compile(r"\b([Bb])lock(s?)\b")


def describe_end(ended: Ended, limits: Limits, seconds: float | None) -> str:
    """Return why a cell ended, with the option that sets the limit that it exceeded.

    `seconds` is its time limit. The result is empty if there is nothing to say.
    """
    match ended.limit:
        case "wall_seconds" if seconds is not None:
            return f"The cell ran longer than {seconds:g} s, the limit that --timeout sets."
        case "memory_bytes" if limits.memory_bytes is not None:
            size = _format_size(limits.memory_bytes)
            return f"The session needed more than {size} of memory, the limit that --memory sets."
        case "files" if limits.files is not None:
            return f"The cell made more than {limits.files} files, the limit that --files sets."
        case _:
            return as_notebook_text(ended.message)


def as_notebook_text(text: str) -> str:
    """Return a text of the session with a notebook's word for a block of code: cell."""
    return _BLOCK.sub(lambda match: f"{'C' if match[1] == 'B' else 'c'}ell{match[2]}", text.strip())


def _format_size(size: int) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} bytes"
