"""Text for people: what a terminal draws as nothing is shown as U+FFFD."""

from __future__ import annotations

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


def test_what_a_terminal_draws_as_nothing_is_shown_and_other_text_kept() -> None:
    shown = {name: visible(f"a{character}b") for name, character in NOTHING.items()}
    assert shown == dict.fromkeys(NOTHING, "a\ufffdb")
    kept = ["grün", "❤️", "👩‍👩‍👧", "한국어", "a\tb\n", "❤️‍🔥"]
    assert [visible(text) for text in kept] == kept
