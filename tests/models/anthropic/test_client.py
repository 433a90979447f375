"""AnthropicChatCompletionClient on a server that sends what the real service sends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from cellblock import CancellationToken
from cellblock.components import load_component
from cellblock.errors import ModelError, ModelOutputError
from cellblock.models import (
    AnthropicChatCompletionClient,
    AssistantMessage,
    CreateResult,
    FunctionCall,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    RequestUsage,
    SystemMessage,
    ToolSchema,
    UserMessage,
)
from tests.models.http_service import HTTPService, Received, Reply, event_reply, json_reply

MODEL = "claude-sonnet-4-20250514"
KEY = "sk-ant-secret-123"
HELLO: list[LLMMessage] = [
    SystemMessage(content="Be kind."),
    UserMessage(content="Hi", source="user"),
]
WEATHER = ToolSchema(name="weather", description="Get the weather.")
THINKING = {"type": "enabled", "budget_tokens": 1024}


class Plan(BaseModel):
    """A plan."""

    text: str


def message(*content: dict[str, Any], stop_reason: str = "end_turn") -> Reply:
    return json_reply(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": MODEL,
            "content": content or [{"type": "text", "text": "Hey"}],
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": {"input_tokens": 9, "output_tokens": 3},
        }
    )


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    place = {"index": index}
    return [
        {"type": "content_block_start", **place, "content_block": start},
        *({"type": "content_block_delta", **place, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", **place},
    ]


START: dict[str, Any] = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": 9, "output_tokens": 1},
    },
}


def streamed(*events: dict[str, Any], stop_reason: str = "end_turn") -> Reply:
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    end = {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 3}}
    return event_reply(START, {"type": "ping"}, *events, end, {"type": "message_stop"})


def client_of(service: HTTPService, **arguments: Any) -> AnthropicChatCompletionClient:
    settings: dict[str, Any] = {"model": MODEL, "api_key": KEY, "max_retries": 0, **arguments}
    return AnthropicChatCompletionClient(base_url=service.url, **settings)


def ask(
    *replies: Reply,
    messages: list[LLMMessage] = HELLO,
    client: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> tuple[CreateResult, list[Received]]:
    """Return the client's answer and the requests that the service received."""

    async def run() -> tuple[CreateResult, list[Received]]:
        async with HTTPService(*replies) as service:
            model = client_of(service, **(client or {}))
            try:
                result = await model.create(messages, **arguments)
            finally:
                await model.close()
            return result, service.requests

    return asyncio.run(run())


def ask_stream(reply: Reply, **arguments: Any) -> list[str | CreateResult]:
    """Return what the client yields."""

    async def run() -> list[str | CreateResult]:
        async with HTTPService(reply) as service:
            model = client_of(service)
            try:
                return [item async for item in model.create_stream(HELLO, **arguments)]
            finally:
                await model.close()

    return asyncio.run(run())


def test_an_answer_has_text_usage_and_reason() -> None:
    result, [request] = ask(message())
    assert result == CreateResult(
        content="Hey", finish_reason="stop", usage=RequestUsage(9, 3), cached=False
    )
    assert request.path == "/v1/messages"
    # Versions of the SDK send it in different headers.
    assert {KEY, f"Bearer {KEY}"} & set(request.headers.values())
    assert request.body == {
        "model": MODEL,
        "max_tokens": 4096,
        "system": "Be kind.",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
        "stream": False,
    }


def test_arguments_of_the_client_and_of_the_call_are_sent() -> None:
    client = {"temperature": 0.5, "top_k": 7, "max_tokens": 10, "stop_sequences": ["END"]}
    _, [request] = ask(message(), client=client, extra_create_args={"top_k": 8})
    sent = request.body
    assert (sent["temperature"], sent["top_k"], sent["max_tokens"]) == (0.5, 8, 10)
    assert sent["stop_sequences"] == ["END"]


def test_tools_are_sent_and_calls_arrive() -> None:
    call = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Paris"}}
    reply = message(call, stop_reason="tool_use")
    result, [request] = ask(reply, tools=[WEATHER], tool_choice=WEATHER)
    assert result.content == [FunctionCall("c1", '{"city": "Paris"}', "weather")]
    assert request.body["tool_choice"] == {"type": "tool", "name": "weather"}
    assert request.body["tools"][0]["name"] == "weather"


def test_json_of_a_class_comes_from_a_tool() -> None:
    call = {"type": "tool_use", "id": "c1", "name": "Plan", "input": {"text": "go"}}
    result, [request] = ask(message(call, stop_reason="tool_use"), json_output=Plan)
    assert Plan.model_validate_json(str(result.content)) == Plan(text="go")
    assert request.body["tool_choice"] == {"type": "tool", "name": "Plan"}
    assert request.body["tools"][0]["input_schema"] == Plan.model_json_schema()


@pytest.mark.parametrize(
    ("client", "arguments"),
    [
        ({}, {"json_output": True}),
        ({}, {"json_output": Plan, "tools": [WEATHER]}),
        ({"thinking": THINKING}, {"json_output": Plan}),
    ],
)
def test_where_a_tool_cannot_be_forced_the_model_is_instructed(
    client: dict[str, Any], arguments: dict[str, Any]
) -> None:
    reply = message({"type": "text", "text": '```json\n{"text": "go"}\n```'})
    result, [request] = ask(reply, client=client, **arguments)
    assert result.content == '{"text": "go"}'
    assert request.body["system"].startswith("Be kind.\n\nAnswer with one JSON")
    assert request.body.get("tool_choice") in (None, {"type": "auto"})


def test_an_answer_that_is_not_the_requested_json_is_an_error() -> None:
    call = {"type": "tool_use", "id": "c1", "name": "Plan", "input": {"text": 5}}
    with pytest.raises(ModelOutputError, match="not JSON of Plan: text: Input should be a valid"):
        ask(message(call, stop_reason="tool_use"), json_output=Plan)


def test_results_of_tools_are_sent_without_thinking() -> None:
    messages = [
        *HELLO,
        AssistantMessage(content=[FunctionCall("c1", "{}", "weather")], source="bot"),
        FunctionExecutionResultMessage(
            content=[FunctionExecutionResult(content="sun", name="weather", call_id="c1")]
        ),
    ]
    client = {"thinking": THINKING}
    _, [request] = ask(message(), messages=messages, client=client, tools=[WEATHER])
    assert "thinking" not in request.body
    _, [request] = ask(message(), client=client, tools=[WEATHER])
    assert request.body["thinking"] == THINKING


THOUGHTS: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "Which town?", "signature": "sig"},
    {"type": "redacted_thinking", "data": "encrypted"},
    {"type": "text", "text": "Let me look."},
]
CALL: dict[str, Any] = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"town": "X"}}
PIECES = [
    *block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Which "},
        {"type": "thinking_delta", "thinking": "town?"},
        {"type": "signature_delta", "signature": "sig"},
    ),
    *block(1, THOUGHTS[1]),
    *block(2, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Let me look."}),
    *block(3, {**CALL, "input": {}}, {"type": "input_json_delta", "partial_json": '{"town": "X"}'}),
]


@pytest.mark.parametrize("streams", [False, True])
async def test_signed_thinking_goes_back_with_the_results_of_tools(streams: bool) -> None:
    answer = message(*THOUGHTS, CALL, stop_reason="tool_use")
    second = message({**CALL, "id": "c2"}, stop_reason="tool_use")  # it does not think again
    if streams:
        answer = streamed(*PIECES, stop_reason="tool_use")
    history = list(HELLO)
    async with HTTPService(answer, second, message()) as service:
        model = client_of(service, thinking=THINKING)
        for _ in range(3):
            if streams and len(history) == len(HELLO):
                *_, result = [item async for item in model.create_stream(history, tools=[WEATHER])]
            else:
                result = await model.create(history, tools=[WEATHER])
            assert isinstance(result, CreateResult)
            if isinstance(result.content, list):
                assert "sig" not in repr(result)
                said = AssistantMessage(
                    content=result.content, thought=result.thought, source="bot"
                )
                kept = AssistantMessage.model_validate_json(said.model_dump_json())
                call_id = result.content[0].id
                weather = FunctionExecutionResult(content="sun", name="weather", call_id=call_id)
                history += [kept, FunctionExecutionResultMessage(content=[weather])]
        await model.create(history, tools=[WEATHER], extra_create_args={"thinking": None})
        await model.close()
    *_, last, plain = (request.body for request in service.requests)
    assert last["thinking"] == THINKING
    assert last["messages"][1]["content"] == [*THOUGHTS, CALL]
    assert last["messages"][3]["content"] == [{**CALL, "id": "c2"}]
    assert [part["type"] for part in plain["messages"][1]["content"]] == ["text", "tool_use"]


def test_a_stream_yields_thinking_between_tags_and_text() -> None:
    thinking = block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "H"},
        {"type": "thinking_delta", "thinking": "m."},
        {"type": "signature_delta", "signature": "x"},
    )
    text = block(
        1,
        {"type": "text", "text": ""},
        {"type": "text_delta", "text": "He"},
        {"type": "text_delta", "text": "y"},
    )
    *pieces, result = ask_stream(streamed(*thinking, *text))
    assert pieces == ["<think>H", "m.", "</think>", "He", "y"]
    assert result == CreateResult(
        content="Hey",
        finish_reason="stop",
        usage=RequestUsage(9, 3),
        cached=False,
        thought="Hm.",
    )


def test_calls_arrive_in_pieces() -> None:
    first = block(
        0,
        {"type": "tool_use", "id": "c1", "name": "weather", "input": {}},
        {"type": "input_json_delta", "partial_json": ""},
        {"type": "input_json_delta", "partial_json": '{"city": "P'},
        {"type": "input_json_delta", "partial_json": 'aris"}'},
    )
    second = block(1, {"type": "tool_use", "id": "c2", "name": "weather", "input": {}})
    reply = streamed(*first, *second, stop_reason="tool_use")
    [result] = ask_stream(reply, tools=[WEATHER])
    assert isinstance(result, CreateResult)
    assert result.content == [
        FunctionCall("c1", '{"city": "Paris"}', "weather"),
        FunctionCall("c2", "{}", "weather"),
    ]


def test_a_busy_service_is_asked_again() -> None:
    busy = json_reply(
        {"type": "error", "error": {"message": "Overloaded"}}, 529, retry_after_ms="1"
    )
    result, requests = ask(busy, message(), client={"max_retries": 1})
    assert (result.content, len(requests)) == ("Hey", 2)


@pytest.mark.parametrize(
    ("reply", "status", "text"),
    [
        (
            json_reply(
                {"type": "error", "error": {"type": "authentication_error", "message": "bad key"}},
                401,
                request_id="req_1",
            ),
            401,
            " answered with status 401, request ID req_1: bad key. Check the API key.",
        ),
        (Reply(body=b"{gar"), None, "cannot be read"),
        (Reply(body=b"[1]"), None, "cannot be read: the answer: "),
        (Reply(body=b'{"content": 5}'), None, "cannot be read: content: Input should be a valid"),
        (message({"type": "tool_use"}), None, "a tool call has no ID or no name."),
    ],
)
def test_errors_of_the_service_are_model_errors(
    reply: Reply, status: int | None, text: str
) -> None:
    with pytest.raises(ModelError) as caught:
        ask(reply)
    assert text in str(caught.value)
    assert caught.value.status == status


@pytest.mark.parametrize(
    "reply",
    [
        event_reply({"type": "message_start", "message": 5}),
        event_reply({"type": "ping"}),
        event_reply(START, *block(0, {"type": "text", "text": "half"})),
        event_reply(START, {"type": "error", "error": {"message": "Overloaded"}}),
        streamed({"type": "content_block_delta", "index": 3, "delta": {"type": "text_delta"}}),
        Reply(body=b"event: message_start\ndata: {gar\n\n", content_type="text/event-stream"),
    ],
)
def test_a_damaged_stream_is_a_model_error(reply: Reply) -> None:
    with pytest.raises(ModelError):
        ask_stream(reply)


async def test_the_token_cancels_the_request() -> None:
    token = CancellationToken()
    begun = event_reply(START, *block(0, {"type": "text", "text": "He"}))
    silent = Reply(body=begun.body, content_type=begun.content_type, hangs=True)
    async with HTTPService(silent, message()) as service:
        model = client_of(service)
        stream = model.create_stream(HELLO, cancellation_token=token)
        assert await anext(stream) == "He"
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await anext(stream)
        await service.disconnected.wait()
        assert (await model.create(HELLO)).content == "Hey"
        await model.close()


def test_the_key_is_in_no_dump_or_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    model = AnthropicChatCompletionClient(model=MODEL, api_key=KEY, thinking=THINKING)
    saved = model.dump_component().to_json()
    assert KEY not in saved + repr(model)
    assert model.dump_component().config == {"model": MODEL, "thinking": THINKING}
    assert load_component(saved).dump_component().to_json() == saved
    theirs = {
        "provider": "autogen_ext.models.anthropic.AnthropicChatCompletionClient",
        "component_type": "model",
        "version": 1,
        "component_version": 1,
        "config": {"model": MODEL, "api_key": "**********", "max_tokens": 4096, "temperature": 1.0},
    }
    assert isinstance(load_component(theirs), AnthropicChatCompletionClient)


def test_an_unknown_model_needs_its_abilities() -> None:
    with pytest.raises(ValueError, match="model_info is required"):
        AnthropicChatCompletionClient(model="other", api_key=KEY)
