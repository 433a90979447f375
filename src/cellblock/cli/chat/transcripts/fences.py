"""Fenced code in Markdown."""

from __future__ import annotations

import re


def fenced(text: str, language: str) -> str:
    """Return `text` as a fenced block. The fence is longer than any backticks in it."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    marks = "`" * max(3, longest + 1)
    line_end = "" if not text or text.endswith("\n") else "\n"
    return f"{marks}{language}\n{text}{line_end}{marks}"
