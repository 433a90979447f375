"""Text for people: what a terminal draws as nothing is shown as U+FFFD."""

from __future__ import annotations

import pytest

from cellblock.visible_text import visible

NOTHING = {
    "a zero-width space": "\u200b",
    "a zero-width joiner between letters": "\u200d",
    "a word joiner": "\u2060",
    "a byte order mark": "\ufeff",
    "a tag": "\U000e0041",
    "a variation selector": "\ufe0f",
    "a supplementary variation selector": "\U000e0101",
    "a Hangul filler": "\u3164",
    "a halfwidth Hangul filler": "\uffa0",
    "a Hangul Choseong filler": "\u115f",
    "a soft hyphen": "\u00ad",
    "a line separator": "\u2028",
    "an 8-bit control": "\x9b",
}


@pytest.mark.parametrize("name", NOTHING)
def test_what_a_terminal_draws_as_nothing_is_shown(name: str) -> None:
    assert visible(f"a{NOTHING[name]}b") == "a\ufffdb"


@pytest.mark.parametrize("text", ["grün", "❤️", "👩‍👩‍👧", "한국어", "a\tb\n", "❤️‍🔥"])
def test_what_can_be_seen_is_kept(text: str) -> None:
    assert visible(text) == text
