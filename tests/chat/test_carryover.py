"""What the first message of a chat says of earlier chats."""

from __future__ import annotations

from typing import Any

import pytest

from cellblock.chat import InvalidCarryOverType
from tests.chat.scripted import scripted

PARTS: list[dict[str, Any]] = [{"type": "text", "text": "t"}]
CONTEXT_PART = {"type": "text", "text": "\nContext: \nC"}


@pytest.mark.parametrize(
    ("message", "carryover", "expected"),
    [
        ("m", "C", "m\nContext: \nC"),
        ("m", ["C", 3, {"k": 1}, {"content": "c"}], "m\nContext: \nC\n3\n{'k': 1}\nc"),
        ("", "C", "\nContext: \nC"),
        ("m", "", "m"),
        ("m", [], "m"),
        ("m", None, "m"),
        ({"content": "m", "x": 1}, "C", {"content": "m\nContext: \nC", "x": 1}),
        ({"content": PARTS}, "C", {"content": [CONTEXT_PART, *PARTS]}),
        ({"content": None, "tool_calls": []}, "C", {"content": None, "tool_calls": []}),
        ({"x": 1}, "C", {"x": 1}),
    ],
)
def test_carryover_is_added_to_the_message(message: Any, carryover: Any, expected: Any) -> None:
    assert scripted("a").generate_init_message(message, carryover=carryover) == expected


def test_the_message_itself_stays_as_it_is() -> None:
    message: dict[str, Any] = {"content": [*PARTS]}
    scripted("a").generate_init_message(message, carryover="C")
    assert message == {"content": PARTS}


@pytest.mark.parametrize("carryover", [5, {"a": 1}, ("C",), True])
def test_carryover_is_text_or_a_list(carryover: Any) -> None:
    with pytest.raises(InvalidCarryOverType, match="string or a list of strings"):
        scripted("a").initiate_chat(scripted("b"), message="m", carryover=carryover)
