"""The scripted model; what it has in common with AutoGen's is in `tests/transcripts`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cellblock import CancellationToken, ComponentError
from cellblock.models import (
    ModelInfo,
    ReplayChatCompletionClient,
    UserMessage,
)

HELLO = [UserMessage(content="hello there", source="user")]


def test_streamed_calls_are_recorded_as_the_others_are() -> None:
    async def run() -> ReplayChatCompletionClient:
        client = ReplayChatCompletionClient(["one", "two"])
        async for _ in client.create_stream(HELLO, extra_create_args={"seed": 1}):
            pass
        await client.create(HELLO)
        return client

    client = asyncio.run(run())
    calls = client.create_calls
    assert [call["messages"] for call in calls] == [HELLO, HELLO]
    assert client.provided_message_count == 2
    assert [call["extra_create_args"] for call in calls] == [{"seed": 1}, {}]


def test_a_stream_that_is_closed_early_has_used_its_answer() -> None:
    async def run() -> object:
        client = ReplayChatCompletionClient(["one two", "three"])
        stream = client.create_stream(HELLO)
        assert await anext(stream) == "one "
        await stream.aclose()
        return (await client.create(HELLO)).content

    assert asyncio.run(run()) == "three"


def test_a_recorded_call_keeps_its_messages_when_the_list_grows() -> None:
    async def run() -> ReplayChatCompletionClient:
        client, messages = ReplayChatCompletionClient(["one"]), list(HELLO)
        await client.create(messages)
        messages.append(UserMessage(content="later", source="user"))
        return client

    assert asyncio.run(run()).create_calls[0]["messages"] == HELLO


async def test_a_cancelled_token_ends_a_call_and_the_next_words_of_a_stream() -> None:
    client, token = ReplayChatCompletionClient(["one two three"] * 2), CancellationToken()
    stream = client.create_stream(HELLO, cancellation_token=token)
    assert await anext(stream) == "one "
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await anext(stream)
    with pytest.raises(asyncio.CancelledError):
        await client.create(HELLO, cancellation_token=token)


def test_a_damaged_configuration_is_refused() -> None:
    saved = ReplayChatCompletionClient(["one"]).dump_component().to_dict()
    saved["config"]["chat_completions"] = [{"content": "no usage"}]
    with pytest.raises(ComponentError, match="ReplayChatCompletionClient"):
        ReplayChatCompletionClient.load_component(saved)


def test_an_incomplete_model_info_is_refused() -> None:
    info: ModelInfo = {"vision": True}  # type: ignore[typeddict-item]  # pyright: ignore[reportAssignmentType] - the mistake
    with pytest.raises(ValueError, match="model_info lacks family, function_calling"):
        ReplayChatCompletionClient([], info)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ("hi", r"messages must be a list such as \[UserMessage.*not a str"),
        (HELLO[0], "not a UserMessage"),
        (["hi"], r"messages\[0\] is a str. Pass a message such as UserMessage"),
        ([*HELLO, {"role": "user", "content": "the question"}], r"messages\[1\] is a dict"),
    ],
)
def test_what_is_no_message_is_refused_and_uses_no_answer(messages: Any, message: str) -> None:
    async def run() -> object:
        client = ReplayChatCompletionClient(["one"])
        with pytest.raises(ValueError, match=message):
            await client.create(messages)
        return (await client.create(HELLO)).content

    assert asyncio.run(run()) == "one"


def test_a_text_is_no_list_of_answers() -> None:
    with pytest.raises(ValueError, match=r"Pass \[text\]"):
        ReplayChatCompletionClient("abc")
