"""Chats one after the other and side by side, with the summaries of those before."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cellblock.chat import (
    Agent,
    ConversableAgent,
    InvalidCarryOverType,
    initiate_chats,
)
from tests.chat.console import console
from tests.chat.scripted import contents, scripted


def entry(recipient: ConversableAgent, message: str = "m", **options: Any) -> dict[str, Any]:
    return {"recipient": recipient, "message": message, "max_turns": 1, "silent": True, **options}


def agents(names: str) -> list[ConversableAgent]:
    return [scripted(name, *[f"{name}{i}" for i in range(1, 5)]) for name in names]


def test_results_of_finished_chats_stay_when_one_fails() -> None:
    a, b = agents("ab")
    assert a.get_chat_results() == []
    with pytest.raises(RuntimeError, match="broken"):
        a.initiate_chats([entry(b), entry(scripted("bad", RuntimeError("broken")))])
    assert [result.summary for result in a.get_chat_results()] == ["b1"]


@pytest.mark.parametrize("name", ["sender", "recipient"])
def test_an_entry_without_an_agent_is_refused_before_the_first_chat(name: str) -> None:
    a, b = agents("ab")
    queue = [entry(b, sender=a), {**entry(b, sender=a), name: None}]
    with pytest.raises(AssertionError, match=f"{name} must be provided"):
        initiate_chats(queue)
    assert not a.chat_messages[b]


@pytest.mark.parametrize("carryover", [5, {"a": 1}])
def test_carryover_of_an_entry_is_text_or_a_list(carryover: Any) -> None:
    a, b = agents("ab")
    with pytest.raises(InvalidCarryOverType):
        a.initiate_chats([entry(b, carryover=carryover)])


def test_a_repeated_recipient_and_a_missing_message_are_warned_of() -> None:
    a, b = agents("ab")
    with pytest.warns(UserWarning, match="Repetitive recipients detected"):
        a.initiate_chats([entry(b), entry(b)])
    with console("typed"), pytest.warns(UserWarning, match="message is not provided"):
        result = a.initiate_chats([{"recipient": b, "max_turns": 1, "silent": True}])
    assert contents(result[0].chat_history)[0] == "typed"


class Waiting(ConversableAgent):
    """Replies when it is let go, and tells when a message is there."""

    def __init__(self, name: str) -> None:
        super().__init__(name, human_input_mode="NEVER", llm_config=False)
        self.asked, self.go = asyncio.Event(), asyncio.Event()
        self.cancelled = False

    async def a_generate_reply(
        self, messages: Any = None, sender: Agent | None = None, **kwargs: Any
    ) -> str:
        self.asked.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return f"{self.name} went"


async def test_chats_without_prerequisites_run_at_the_same_time() -> None:
    a, b, c = scripted("a"), Waiting("b"), Waiting("c")
    chats = asyncio.create_task(a.a_initiate_chats([entry(b, chat_id=1), entry(c, chat_id=2)]))
    async with asyncio.timeout(10):
        await b.asked.wait()
        await c.asked.wait()
        b.go.set()
        c.go.set()
        results = await chats
    assert [results[1].summary, results[2].summary] == ["b went", "c went"]


async def test_a_failure_cancels_the_chats_that_still_run() -> None:
    a, b, bad = scripted("a"), Waiting("b"), scripted("bad", RuntimeError("broken"))
    with pytest.raises(RuntimeError, match="broken"):
        await a.a_initiate_chats([entry(b, chat_id=1), entry(bad, chat_id=2)])
    assert b.cancelled
    assert contents(a.chat_messages[b]) == ["m"]


async def test_cancellation_ends_the_chats() -> None:
    a, b = scripted("a"), Waiting("b")
    chats = asyncio.create_task(a.a_initiate_chats([entry(b, chat_id=1)]))
    async with asyncio.timeout(10):
        await b.asked.wait()
        chats.cancel()
        with pytest.raises(asyncio.CancelledError):
            await chats
    assert b.cancelled


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ([{}, {"chat_id": 2}], "needs a chat_id"),
        ([{"chat_id": 1}, {"chat_id": 1}], "Two chats have the chat_id 1"),
        ([{"chat_id": 1}, {"chat_id": 2, "prerequisites": [9]}], r"chat 2 waits for \[9\]"),
        (
            [{"chat_id": 1, "prerequisites": [2]}, {"chat_id": 2, "prerequisites": [1]}],
            r"chat 1 waits for \[2\]",
        ),
    ],
)
def test_a_queue_that_cannot_run_is_refused_before_the_first_chat(
    options: list[dict[str, Any]], error: str
) -> None:
    a, b, c = agents("abc")
    queue = [entry(each, **more) for each, more in zip((b, c), options, strict=True)]
    with pytest.raises(ValueError, match=error):
        asyncio.run(a.a_initiate_chats(queue))
    assert not a.chat_messages[b]
