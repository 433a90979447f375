"""Hooks change messages before a reply and before they are sent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cellblock.chat import Agent, ConversableAgent
from tests.chat.console import console


def agent(name: str = "a") -> ConversableAgent:
    """Return an agent that replies with the messages it is shown."""
    a = ConversableAgent(name, llm_config=False, human_input_mode="NEVER")

    def show(recipient: Any, messages: Any, sender: Any, config: Any) -> tuple[bool, Any]:
        return True, str([each["content"] for each in messages])

    a.register_reply([Agent, None], show)
    return a


def shout(content: str) -> str:
    return content + "!"


async def ask(content: str) -> str:
    return content + "?"


def test_asynchronous_chats_run_the_asynchronous_hooks() -> None:
    a, b = agent(), agent("b")

    async def more(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [*messages, {"content": "more"}]

    async def quote(sender: Any, message: Any, recipient: Any, silent: bool) -> Any:
        return f"> {message}"

    a.register_hook("a_process_all_messages_before_reply", more)
    a.register_hook("a_process_last_received_message", ask)
    a.register_hook("a_process_message_before_send", quote)
    a.register_hook("process_last_received_message", shout)
    with console():
        asyncio.run(b.a_send("hi", a, request_reply=True))
    assert b.chat_messages[a][1]["content"] == "> ['hi', 'more?']"


def test_a_synchronous_hook_of_an_asynchronous_chat_warns_and_runs() -> None:
    a, b = agent(), agent("b")
    with pytest.warns(UserWarning, match="Hook 'shout' is synchronous, but it's being registered"):
        a.register_hook("a_process_last_received_message", shout)
    with console():
        asyncio.run(b.a_send("hi", a, request_reply=True))
    assert b.chat_messages[a][1]["content"] == "['hi!']"


def test_bad_hooks_are_refused() -> None:
    a = agent()
    with pytest.raises(AssertionError, match="nope is not a hookable method"):
        a.register_hook("nope", shout)
    with pytest.raises(TypeError, match="Register it for 'a_process_last_received_message'"):
        a.register_hook("process_last_received_message", ask)
    a.register_hook("process_last_received_message", shout)
    with pytest.raises(AssertionError, match="is already registered as a hook"):
        a.register_hook("process_last_received_message", shout)


def test_a_hook_that_returns_nothing_is_named() -> None:
    a = agent()

    def forgetful(content: str) -> None: ...

    a.register_hook("process_last_received_message", forgetful)
    with pytest.raises(TypeError, match="hook 'forgetful' returned None"):
        a.generate_reply([{"content": "x"}])
