"""The commands that AutoGen 0.2's local executor refuses: a guard against slips, not a sandbox."""

from __future__ import annotations

import re

_SHELLS = ("bash", "shell", "sh")
_START = r"(?:^|[;&|(`]|\bsudo\b|\bexec\b)[ \t]*"  # where a command begins
_REFUSED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\brm\s+-rf\b"), "Use of 'rm -rf' command is not allowed."),
    (
        re.compile(r"\bmv\b[^\n;&|]*\s/dev/null\b"),
        "Moving files to /dev/null is not allowed.",
    ),
    (re.compile(_START + r"dd\b", re.MULTILINE), "Use of 'dd' command is not allowed."),
    (
        re.compile(r">\s*/dev/sd[a-z]"),
        "Overwriting disk blocks directly is not allowed.",
    ),
    (
        re.compile(r"([\w:]+)\s*\(\s*\)\s*\{\s*\1\s*\|\s*\1\s*&"),
        "Fork bombs are not allowed.",
    ),
)


def refusal_of(language: str, code: str) -> str | None:
    """Return why a block of `language` is refused; None if it is not."""
    if language.lower() not in _SHELLS:
        return None
    for pattern, reason in _REFUSED:
        if pattern.search(code):
            return f"Potentially dangerous command detected: {reason}"
    return None
