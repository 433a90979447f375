"""Show text to people as it is: replace characters that would make it look like another one."""

from __future__ import annotations

import re

# What moves the cursor, changes the order of characters or is drawn as nothing would show other
# code than what runs. Emoji are joined and styled by two of these characters.
_EMOJI = "\u2190-\u2bff\u3030\u303d\U0001f000-\U0001faff"
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    f"|(?<![{_EMOJI}])\ufe0f|(?<![{_EMOJI}\ufe0f])\u200d"
)


def visible(text: str) -> str:
    """Return `text` with U+FFFD for each character that a terminal would not show."""
    return _HIDDEN.sub("\ufffd", text)
