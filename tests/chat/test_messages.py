"""What agents store and print of the messages they send and receive."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cellblock.chat import Agent, ConversableAgent
from tests.chat.console import console


def agent(name: str, **options: Any) -> ConversableAgent:
    """Return an agent that asks nobody."""
    return ConversableAgent(name, llm_config=False, human_input_mode="NEVER", **options)


@pytest.mark.parametrize("message", [None, 3])
def test_what_is_no_message_is_refused_by_type(message: Any) -> None:
    with pytest.raises(TypeError, match="A message must be a text or a dict"):
        agent("a").send(message, agent("b"))


def test_a_template_is_filled_for_the_print_if_the_recipient_allows_it() -> None:
    a, b = agent("a"), agent("b")
    b.llm_config = {"allow_format_str_template": True}
    with console() as stream:
        a.send({"content": "hello {n}", "context": {"n": "bob"}}, b, request_reply=False)
    assert "\nhello bob\n" in stream.text
    assert b.chat_messages[a][0]["content"] == "hello {n}"


def test_an_agent_replies_if_asked_to_or_within_a_chat() -> None:
    a, b = agent("a"), agent("b", default_auto_reply="yes")
    with console():
        a.send("1", b)
        assert len(b.chat_messages[a]) == 1
        a.send("2", b, request_reply=True)
        assert [each["content"] for each in a.chat_messages[b]] == ["1", "2", "yes"]
        b.reply_at_receive[a] = True
        asyncio.run(a.a_send("3", b))
        b.stop_reply_at_receive(a)
        a.send("4", b)
    assert [each["content"] for each in b.chat_messages[a]] == ["1", "2", "yes", "3", "yes", "4"]


def test_a_long_conversation_stays_below_the_recursion_limit() -> None:
    a, b = agent("a", default_auto_reply="a"), agent("b", default_auto_reply="b")
    a.initiate_chat(b, message="start", silent=True)
    assert len(a.chat_messages[b]) == 201
    a.reset()
    b.reset()
    asyncio.run(a.a_initiate_chat(b, message="start", silent=True))
    assert len(a.chat_messages[b]) == 201


def test_another_class_can_take_part_in_a_chat() -> None:
    received: list[Any] = []

    class Other:
        name = "other"
        description = "not a ConversableAgent"

        def send(self, *arguments: Any) -> None: ...
        async def a_send(self, *arguments: Any) -> None: ...
        def receive(self, message: Any, sender: Any, *rest: Any) -> None:
            received.append((message, sender.name))

        async def a_receive(self, *arguments: Any) -> None: ...
        def generate_reply(self, *arguments: Any) -> None: ...
        async def a_generate_reply(self, *arguments: Any) -> None: ...

    other: Any = Other()
    assert isinstance(other, Agent)
    with console() as stream:
        agent("a").send("hi", other)
        agent("a").receive("hello", other, request_reply=False)
    assert received == [("hi", "a")]
    assert "other (to a):" in stream.text
