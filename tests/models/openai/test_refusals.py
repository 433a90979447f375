"""Servers that refuse a part of OpenAI's protocol are asked again without it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from cellblock.errors import ModelError
from cellblock.models import (
    AssistantMessage,
    CreateResult,
    FunctionCall,
    Image,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from tests.models.http_service import HTTPService, Reply, json_reply, stream_reply
from tests.models.openai.test_client import client_of, completion, streamed

MESSAGES = (
    SystemMessage(content="Be brief."),
    UserMessage(content="Hi", source="user"),
    UserMessage(content="there", source="code"),
    AssistantMessage(content="Hey", source="assistant"),
    UserMessage(content="Bye", source="user"),
)
ROLES = "Conversation roles must alternate user/assistant/user/assistant/..."
Roles = list[tuple[str, str]]


def has_same_role_in_a_row(body: Any) -> bool:
    roles = [message["role"] for message in body["messages"] if message["role"] != "system"]
    return any(first == second for first, second in zip(roles, roles[1:], strict=False))


def has_system(body: Any) -> bool:
    return any(message["role"] == "system" for message in body["messages"])


def ask_twice(
    refuses: Callable[[Any], bool],
    refusal: Reply,
    messages: Sequence[LLMMessage] = MESSAGES,
    **client: Any,
) -> tuple[CreateResult, list[Any]]:
    """Stream two answers; return the last one and the bodies of all requests."""

    async def run() -> tuple[CreateResult, list[Any]]:
        async with HTTPService(
            streamed("Fine."), refuse=lambda body: refusal if refuses(body) else None
        ) as service:
            model = client_of(service, **client)
            try:
                assert [item async for item in model.create_stream(messages)]
                *_, result = [item async for item in model.create_stream(messages)]
            finally:
                await model.close()
            assert isinstance(result, CreateResult)
            return result, [request.body for request in service.requests]

    return asyncio.run(run())


def shown(body: Any) -> Roles:
    return [(message["role"], message["content"]) for message in body["messages"]]


def refusal(message: str, status: int = 400, param: str | None = None) -> Reply:
    return json_reply({"error": {"message": message, "param": param}}, status)


@pytest.mark.parametrize("status", [400, 500])  # llama.cpp's server says 500
def test_messages_of_one_role_in_a_row_are_joined(status: int) -> None:
    result, bodies = ask_twice(has_same_role_in_a_row, refusal(ROLES, status))
    assert (result.content, len(bodies)) == ("Fine.", 3)  # it is refused once
    assert shown(bodies[0])[1:3] == [("user", "Hi"), ("user", "there")]
    assert shown(bodies[1]) == [
        ("system", "Be brief."),
        ("user", "Hi\n\nthere"),
        ("assistant", "Hey"),
        ("user", "Bye"),
    ]


def test_pictures_stay_in_messages_that_are_joined() -> None:
    image = Image.from_bytes(b"\x89PNG", "image/png")
    messages = [
        UserMessage(content="Hi", source="user"),
        UserMessage(content=["look", image], source="code"),
    ]
    _, bodies = ask_twice(has_same_role_in_a_row, refusal(ROLES), messages)
    [(role, parts)] = shown(bodies[-1])
    assert role == "user"
    assert [dict(part)["type"] for part in list[Any](parts)] == ["text", "text", "image_url"]


@pytest.mark.parametrize(
    "message",
    [
        "System role not supported",
        "Unsupported value: 'messages[0].role' does not support 'system' with this model.",
        ROLES,  # of templates that do not know the role
    ],
)
def test_system_messages_begin_the_first_message_of_the_user(message: str) -> None:
    _, bodies = ask_twice(has_system, refusal(message))
    role, text = shown(bodies[-1])[0]
    assert (role, text.split("\n\n")[:2]) == ("user", ["Be brief.", "Hi"])


@pytest.mark.parametrize(
    "message",
    [
        "Extra inputs are not permitted: name",
        "'messages.0' : the following must be satisfied: property 'name' is unsupported",
    ],
)
def test_names_of_speakers_are_left_out(message: str) -> None:
    _, bodies = ask_twice(lambda body: "name" in str(body["messages"]), refusal(message))
    assert bodies[0]["messages"][1]["name"] == "user"
    assert (len(bodies), "name" in str(bodies[-1]["messages"])) == (3, False)


def test_the_usage_is_not_requested() -> None:
    detail = [{"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "Extra"}]
    _, bodies = ask_twice(
        lambda body: "stream_options" in body, json_reply({"detail": detail}, status=422)
    )
    assert ["stream_options" in body for body in bodies] == [True, False, False]


def test_options_of_the_caller_are_not_left_out() -> None:
    with pytest.raises(ModelError, match="stream_options"):
        ask_twice(
            lambda body: "stream_options" in body,
            refusal("Unsupported parameter: stream_options"),
            stream_options={"include_usage": True, "mine": 1},
        )


def test_a_whole_answer_instead_of_a_stream_is_read() -> None:
    async def run() -> list[str | CreateResult]:
        async with HTTPService(completion("Whole.")) as service:
            model = client_of(service)
            try:
                return [item async for item in model.create_stream(MESSAGES)]
            finally:
                await model.close()

    assert asyncio.run(run())[0] == "Whole."


def test_a_server_that_does_not_stream_is_asked_for_the_whole_answer() -> None:
    async def run() -> tuple[list[str | CreateResult], list[bool]]:
        refused = refusal("Unsupported parameter: 'stream'", param="stream")
        async with HTTPService(
            completion("Whole."), refuse=lambda body: refused if body["stream"] else None
        ) as service:
            model = client_of(service)
            try:
                items = [item async for item in model.create_stream(MESSAGES)]
                items += [item async for item in model.create_stream(MESSAGES)]
            finally:
                await model.close()
            return items, [request.body["stream"] for request in service.requests]

    items, streams = asyncio.run(run())
    assert items[::2] == ["Whole.", "Whole."]
    assert streams == [True, False, False]


def test_an_empty_stream_is_explained_by_the_answer_without_a_stream() -> None:
    too_long = refusal("Requested tokens (600) exceed context window of 512")

    async def run() -> None:
        async with HTTPService(
            stream_reply(), refuse=lambda body: None if body["stream"] else too_long
        ) as service:
            model = client_of(service)
            try:
                async for _ in model.create_stream(MESSAGES):
                    pass
            finally:
                await model.close()

    with pytest.raises(ModelError, match=r"exceed context window of 512. Send fewer or shorter"):
        asyncio.run(run())


def test_other_refusals_are_not_repeated() -> None:
    with pytest.raises(ModelError, match="The name of the model is invalid") as caught:
        ask_twice(lambda _: True, refusal("The name of the model is invalid"))
    assert caught.value.status == 400


@pytest.mark.parametrize("refuses", [False, True])
async def test_signed_thoughts_go_back_with_their_calls_unless_they_are_refused(
    refuses: bool,
) -> None:
    extra: dict[str, Any] = {"google": {"thought_signature": "sig"}}
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    whole = completion(None, tool_calls=[{**call, "extra_content": extra}])
    pieces: list[Any] = [{"index": 0, **call, "extra_content": extra}]
    chunk = {"choices": [{"index": 0, "delta": {"tool_calls": pieces}, "finish_reason": "stop"}]}
    unknown = refusal("Unknown parameter: 'messages[1].tool_calls[0].extra_content'.")
    async with HTTPService(
        whole,
        stream_reply(chunk),
        completion(),
        refuse=lambda body: unknown if refuses and "extra_content" in str(body) else None,
    ) as service:
        model = client_of(service)
        first = await model.create(MESSAGES)
        *_, second = [item async for item in model.create_stream(MESSAGES)]
        assert isinstance(second, CreateResult)
        history: list[LLMMessage] = [
            AssistantMessage(content=answer.content, source="bot") for answer in (first, second)
        ]
        history.append(
            AssistantMessage(
                content=[FunctionCall("c1", "{}", "f", {"anthropic": []})], source="claude"
            )
        )
        await model.create([*MESSAGES, *history])
        await model.close()
    sent = [message.get("tool_calls") for message in service.requests[-1].body["messages"][-3:]]
    signed = [call] if refuses else [{**call, "extra_content": extra}]
    assert sent == [signed, signed, [call]]
