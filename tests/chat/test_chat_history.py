"""Clear the messages of an agent: all, those with one agent, or all but the last ones."""

from __future__ import annotations

from typing import Any

import pytest

from cellblock.chat import ConversableAgent
from tests.chat.console import console
from tests.chat.scripted import contents, scripted

CALL: dict[str, Any] = {"content": None, "role": "assistant", "tool_calls": [{}]}


def agent_with(*others: ConversableAgent, messages: list[dict[str, Any]]) -> ConversableAgent:
    return ConversableAgent("a", llm_config=False, chat_messages={b: [*messages] for b in others})


def texts(*words: str) -> list[dict[str, Any]]:
    return [{"content": word, "role": "user"} for word in words]


def test_all_conversations_are_cleared() -> None:
    b, c = scripted("b"), scripted("c")
    a = agent_with(b, c, messages=texts(*"12"))
    a.clear_history()
    assert not a.chat_messages


def test_the_conversation_with_one_agent_is_cleared() -> None:
    b, c = scripted("b"), scripted("c")
    a = agent_with(b, c, messages=texts(*"12"))
    a.clear_history(b)
    assert contents(a.chat_messages[b]) == []
    assert a.last_message(b) is None
    assert contents(a.chat_messages[c]) == ["1", "2"]


@pytest.mark.parametrize(("count", "left"), [(1, "4"), (3, "234"), (4, "1234"), (9, "1234")])
def test_the_last_messages_of_each_conversation_stay(count: int, left: str) -> None:
    b, c = scripted("b"), scripted("c")
    a = agent_with(b, c, messages=texts(*"1234"))
    a.clear_history(nr_messages_to_preserve=count)
    assert contents(a.chat_messages[b]) == contents(a.chat_messages[c]) == list(left)


RESULTS: list[list[dict[str, Any]]] = [
    [{"content": "r", "role": "tool", "tool_responses": [{}]}],
    [{"content": "r", "role": "tool", "tool_call_id": "1"}] * 2,
    [{"content": "r", "role": "function", "name": "f"}],
]


@pytest.mark.parametrize("results", RESULTS)
def test_a_call_stays_with_its_results(results: list[dict[str, Any]]) -> None:
    b = scripted("b")
    a = agent_with(b, messages=[*texts("1"), CALL, *results, *texts("last")])
    with console() as stream:
        a.clear_history(nr_messages_to_preserve=2)
    assert a.chat_messages[b] == [CALL, *results, *texts("last")]
    assert "Preserving one more message for a to not divide history" in stream.text


def test_the_number_is_ignored_for_one_agent() -> None:
    b = scripted("b")
    a = agent_with(b, messages=texts(*"12"))
    with console() as stream:
        a.clear_history(b, nr_messages_to_preserve=1)
    assert contents(a.chat_messages[b]) == []
    assert "`nr_preserved_messages` is ignored" in stream.text


def test_a_negative_number_is_refused() -> None:
    b = scripted("b")
    a = agent_with(b, messages=texts(*"12"))
    with pytest.raises(ValueError, match="nr_messages_to_preserve is -1"):
        a.clear_history(nr_messages_to_preserve=-1)
    assert contents(a.chat_messages[b]) == ["1", "2"]
