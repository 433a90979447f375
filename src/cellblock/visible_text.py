"""Show text to people as it is: replace characters that would make it look like another one."""

from __future__ import annotations

import re

# What moves the cursor or changes the order of characters would show other code than what runs.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u061c]")


def visible(text: str) -> str:
    """Return `text` with U+FFFD for each character that a terminal would not show."""
    return _HIDDEN.sub("\ufffd", text)
