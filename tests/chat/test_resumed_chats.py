"""Group chats that go on from saved messages."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from cellblock.chat import GroupChatManager
from tests.chat.console import console
from tests.chat.group import manager_of, said, speakers

SAVED = [
    {"content": "go", "role": "user", "name": "a"},
    {"content": "b0", "role": "user", "name": "b"},
    {"content": "TERMINATE", "role": "user", "name": "c"},
]


def go_on(manager: GroupChatManager, messages: Any, **options: Any) -> Any:
    last_speaker, message = manager.resume(messages, **options)
    return last_speaker.initiate_chat(manager, message=message, clear_history=False)


def a_go_on(manager: GroupChatManager, messages: Any, **options: Any) -> Any:
    async def steps() -> Any:
        last_speaker, message = await manager.a_resume(messages, **options)
        return await last_speaker.a_initiate_chat(manager, message=message, clear_history=False)

    return asyncio.run(steps())


def test_resuming_replaces_what_was_said_before() -> None:
    agents = speakers()
    manager = manager_of(agents, max_round=3)
    agents[0].initiate_chat(manager, message="earlier")
    with console() as stream:
        last_speaker, message = manager.resume(SAVED, silent=True)
    assert (last_speaker, message) == (agents[2], SAVED[2])
    assert said(manager) == ["go", "b0"]
    assert [each["content"] for each in agents[2].chat_messages[manager]] == ["go", "b0"]
    assert stream.text == ""


def test_a_message_that_would_end_the_chat_is_worth_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        manager_of(speakers()).resume(SAVED)
    assert "Last message meets termination criteria" in caplog.text


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([], "no messages were provided"),
        ("[]", "no messages were provided"),
        ("{", "not a valid JSON string"),
        ("5", "not of type"),
        ('{"content": "x"}', "not of type"),
        (None, "not of type"),
        (["text"], "not of type"),
        ([{"content": "x", "role": "user", "name": "d"}, *SAVED], "in group chat: d"),
    ],
)
@pytest.mark.parametrize("resume", [go_on, a_go_on])
def test_what_cannot_be_resumed_is_an_error_and_changes_nothing(
    resume: Any, messages: Any, error: str
) -> None:
    agents = speakers()
    manager = manager_of(agents, max_round=2)
    agents[0].initiate_chat(manager, message="earlier")
    with pytest.raises(ValueError, match=error):
        resume(manager, messages)
    assert said(manager) == ["earlier", "b1"]
