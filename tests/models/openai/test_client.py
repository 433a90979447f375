"""OpenAIChatCompletionClient on a server that sends what the real service sends."""

from __future__ import annotations

import asyncio
import json
import logging
import warnings
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from pydantic import BaseModel, SecretStr

from cellblock import CancellationToken
from cellblock.components import load_component
from cellblock.errors import ComponentError, ModelError, ModelOutputError
from cellblock.models import (
    CreateResult,
    Image,
    ModelInfo,
    OpenAIChatCompletionClient,
    RequestUsage,
    ToolSchema,
    UserMessage,
)
from tests.models.http_service import HTTPService, Reply, json_reply, stream_reply

KEY = "sk-secret-1234567890"
HELLO = [UserMessage(content="Hi", source="user")]
LOCAL = ModelInfo(
    vision=False, function_calling=False, json_output=True, family="x", structured_output=False
)
WEATHER = ToolSchema(name="weather", description="Get the weather.")


class Answer(BaseModel):
    """An answer."""

    text: str


def completion(content: str | None = "Hey", finish_reason: str = "stop", **message: Any) -> Reply:
    choice = {
        "index": 0,
        "finish_reason": finish_reason,
        "message": {"role": "assistant", "content": content, "refusal": None, **message},
    }
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    return json_reply({"id": "chatcmpl-1", "choices": [choice], "usage": usage})


def streamed(*texts: str, hangs: bool = False) -> Reply:
    chunks: list[object] = [
        {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
        for text in texts
    ]
    if not hangs:
        chunks.append({"choices": [{"index": 0, "delta": None, "finish_reason": "stop"}]})
        chunks.append({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}})
    return stream_reply(*chunks, hangs=hangs)


def client_of(service: HTTPService, **arguments: Any) -> OpenAIChatCompletionClient:
    settings: dict[str, Any] = {"model": "gpt-4o", "api_key": KEY, "max_retries": 0, **arguments}
    return OpenAIChatCompletionClient(base_url=f"{service.url}/v1", **settings)


def ask(
    *replies: Reply, client: Mapping[str, Any] | None = None, **arguments: Any
) -> tuple[CreateResult, list[Any]]:
    """Return the client's answer and the requests that the service received."""

    async def run() -> tuple[CreateResult, list[Any]]:
        async with HTTPService(*replies) as service:
            model = client_of(service, **(client or {}))
            try:
                result = await model.create(HELLO, **arguments)
            finally:
                await model.close()
            return result, service.requests

    return asyncio.run(run())


def ask_stream(reply: Reply, **arguments: Any) -> tuple[list[str | CreateResult], Any]:
    """Return what the client yields, and the request that the service received."""

    async def run() -> tuple[list[str | CreateResult], Any]:
        async with HTTPService(reply) as service:
            model = client_of(service)
            try:
                items = [item async for item in model.create_stream(HELLO, **arguments)]
            finally:
                await model.close()
            return items, service.requests[0]

    return asyncio.run(run())


def test_an_answer_has_text_usage_and_reason() -> None:
    result, [request] = ask(completion())
    assert result == CreateResult(
        content="Hey", finish_reason="stop", usage=RequestUsage(9, 3), cached=False
    )
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    message = {"role": "user", "name": "user", "content": "Hi"}
    assert request.body == {"model": "gpt-4o", "messages": [message], "stream": False}


def test_arguments_of_the_client_and_of_the_call_are_sent() -> None:
    client = {
        "temperature": 0.5,
        "seed": 7,
        "stop": ["END"],
        "parallel_tool_calls": False,
        "reasoning_effort": "low",
        "default_headers": {"x-team": "red"},
    }
    extra = {"seed": 8, "min_p": 0.1, "extra_headers": {"x-run": "1"}}
    _, [request] = ask(completion(), client=client, tools=[WEATHER], extra_create_args=extra)
    assert request.headers["x-team"] == "red"
    assert request.headers["x-run"] == "1"
    sent = request.body
    assert (sent["temperature"], sent["seed"], sent["min_p"]) == (0.5, 8, 0.1)
    assert (sent["stop"], sent["parallel_tool_calls"]) == (["END"], False)
    assert (sent["reasoning_effort"], sent["tool_choice"]) == ("low", "auto")


def test_every_keyword_that_autogen_takes_reaches_the_service() -> None:
    fields: dict[str, Any] = {
        "audio": {"format": "wav"},
        "metadata": {"run": "1"},
        "modalities": ["text"],
        "prediction": {"type": "content", "content": "a"},
        "service_tier": "flex",
        "store": True,
        "verbosity": "low",
        "web_search_options": {},
    }
    connection: dict[str, Any] = {
        "project": "p1",
        "default_query": {"a": "1"},
        "extra_query": {"b": "2"},
        "extra_headers": {"x-run": "1"},
        "extra_body": {"min_p": 0.1},
        "websocket_base_url": "ws://127.0.0.1:1",
    }
    with warnings.catch_warnings():  # what is left out is warned of
        warnings.simplefilter("error")
        _, [request] = ask(completion(), client={**fields, **connection})
    assert {name: request.body[name] for name in fields} == fields
    assert (request.body["min_p"], request.headers["x-run"]) == (0.1, "1")
    assert (request.headers["openai-project"], request.path) == (
        "p1",
        "/v1/chat/completions?a=1&b=2",
    )


async def test_a_client_with_connections_of_ones_own_uses_them_and_is_not_saved() -> None:
    async with HTTPService(completion()) as service, httpx.AsyncClient() as http:
        http.headers["x-proxy"] = "1"
        model = client_of(service, http_client=http)
        await model.create(HELLO)
        assert service.requests[0].headers["x-proxy"] == "1"
        with pytest.raises(ComponentError, match="http_client cannot be saved"):
            model.dump_component()
        await model.close()


def test_keywords_that_are_unknown_or_old_warn() -> None:
    settings: dict[str, Any] = {"model": "llama", "api_key": KEY}
    with pytest.warns(UserWarning, match="no parameter 'temprature'.* Did you mean 'temperature'"):
        OpenAIChatCompletionClient(model_info=LOCAL, temprature=1, **settings)  # pyright: ignore[reportCallIssue] # a typing error
    abilities = {"vision": True, "function_calling": False, "json_output": False}
    with pytest.warns(DeprecationWarning, match="model_capabilities is deprecated"):
        model = OpenAIChatCompletionClient(model_capabilities=abilities, **settings)
    assert model.model_info["vision"]
    assert model.model_info["family"] == "unknown"
    with pytest.raises(ValueError, match="mutually exclusive"):
        OpenAIChatCompletionClient(model_capabilities=abilities, model_info=LOCAL, **settings)
    with pytest.warns(UserWarning, match="model_info lacks structured_output"):
        OpenAIChatCompletionClient(model_info={**abilities, "family": "x"}, **settings)  # pyright: ignore[reportArgumentType] # as before AutoGen 0.4.7


def test_a_server_that_does_not_know_stream_options_can_be_used() -> None:
    _, request = ask_stream(streamed("Hey"), extra_create_args={"stream_options": {}})
    assert "stream_options" not in request.body


def test_usage_adds_up() -> None:
    async def run() -> RequestUsage:
        async with HTTPService(completion(), completion(), streamed("Hey")) as service:
            model = client_of(service)
            await model.create(HELLO)
            # Tokens of an answer that is refused were used all the same.
            with pytest.raises(ModelOutputError):
                await model.create(HELLO, json_output=True)
            async for _ in model.create_stream(HELLO):
                pass
            await model.close()
            await model.close()
            assert model.total_usage() == model.actual_usage()
            return model.total_usage()

    assert asyncio.run(run()) == RequestUsage(27, 9)


def test_a_server_with_json_mode_alone_is_told_the_schema() -> None:
    client = {"model": "llama", "model_info": LOCAL}
    reply = completion('```json\n{"text": "Hey"}\n```')
    result, [request] = ask(reply, client=client, json_output=Answer)
    # A model that is only instructed often adds a fence.
    assert result.content == '{"text": "Hey"}'
    wanted = {"type": "json_object", "schema": Answer.model_json_schema()}
    assert request.body["response_format"] == wanted
    assert json.dumps(Answer.model_json_schema()) in request.body["messages"][0]["content"]


@pytest.mark.parametrize(
    ("reply", "json_output", "message"),
    [
        (completion("Hey"), True, "not JSON: Expecting value"),
        (
            completion('{"text": 5}'),
            Answer,
            "not JSON of Answer: text: Input should be a valid str",
        ),
        (completion('{"text": "H', "length"), Answer, "cut off: raise max_tokens"),
        (completion("", "content_filter"), Answer, "The service filtered it"),
        (completion(None, refusal="I cannot."), Answer, "The answer: 'I cannot.'"),
    ],
)
def test_an_answer_that_is_not_the_requested_json_is_an_error(
    reply: Reply, json_output: Any, message: str
) -> None:
    with pytest.raises(ModelOutputError, match=message):
        ask(reply, json_output=json_output)


def test_a_filtered_answer_says_so() -> None:
    result, _ = ask(completion("", "content_filter"))
    assert (result.content, result.finish_reason) == ("", "content_filter")


def test_a_full_service_is_asked_again() -> None:
    busy = json_reply({"error": {"message": "Rate limit"}}, 429, retry_after_ms="1")
    result, requests = ask(busy, busy, completion(), client={"max_retries": 2})
    assert (result.content, len(requests)) == ("Hey", 3)


async def test_a_service_that_does_not_answer_is_a_model_error() -> None:
    silent = Reply(body=b"", hangs=True)
    async with HTTPService(silent) as service:
        model = client_of(service, timeout=0.1)
        with pytest.raises(ModelError, match="did not answer in time"):
            await model.create(HELLO)
        await model.close()


async def test_a_service_that_is_not_there_is_a_model_error() -> None:
    async with HTTPService(completion()) as service:
        pass
    model = client_of(service)
    with pytest.raises(ModelError, match="cannot be reached"):
        await model.create(HELLO)
    await model.close()


async def test_the_token_cancels_the_request() -> None:
    token = CancellationToken()
    async with HTTPService(streamed("He", hangs=True), completion()) as service:
        model = client_of(service)
        stream = model.create_stream(HELLO, cancellation_token=token)
        assert await anext(stream) == "He"
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await anext(stream)
        await service.disconnected.wait()
        assert (await model.create(HELLO)).content == "Hey"
        with pytest.raises(asyncio.CancelledError):
            await model.create(HELLO, cancellation_token=token)
        assert len(service.requests) == 2
        await model.close()


async def test_cancelling_the_task_or_leaving_the_stream_ends_the_request() -> None:
    async with HTTPService(Reply(body=b"", hangs=True)) as service:
        model = client_of(service)
        task = asyncio.create_task(model.create(HELLO))
        while not service.requests:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await service.disconnected.wait()
        await model.close()
    async with HTTPService(streamed("He", hangs=True)) as service:
        model = client_of(service)
        stream = model.create_stream(HELLO)
        assert await anext(stream) == "He"
        await stream.aclose()
        await service.disconnected.wait()
        await model.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tools": [WEATHER]}, "Model does not support function calling"),
        ({"json_output": Answer}, "Model does not support structured output."),
        ({"json_output": True}, "Model does not support JSON output."),
        ({"json_output": "yes"}, "json_output must be a boolean or a Pydantic model class"),
        ({"tool_choice": WEATHER}, "tool_choice specified but no tools provided"),
        ({"tool_choice": "any"}, "tool_choice must be a Tool object, 'auto', 'required'"),
    ],
)
def test_what_the_model_cannot_do_is_refused(arguments: dict[str, Any], message: str) -> None:
    info: ModelInfo = {**LOCAL, "json_output": False}
    with pytest.raises(ValueError, match=message):
        ask(completion(), client={"model": "llama", "model_info": info}, **arguments)


async def test_pictures_and_bad_tools_are_refused() -> None:
    model = OpenAIChatCompletionClient(model="llama", model_info=LOCAL, api_key=KEY)
    picture = UserMessage(content=[Image.from_bytes(b"GIF89a")], source="user")
    with pytest.raises(ValueError, match="does not support vision"):
        await model.create([picture])
    await model.close()
    model = OpenAIChatCompletionClient(model="gpt-4o", api_key=KEY)
    with pytest.raises(ValueError, match="Invalid name: a b"):
        await model.create(HELLO, tools=[{"name": "a b"}])
    with pytest.raises(ValueError, match="references 'now' but it's not in the provided tools"):
        await model.create(HELLO, tools=[WEATHER], tool_choice={"name": "now"})
    await model.close()


def test_an_unknown_model_needs_its_abilities() -> None:
    with pytest.raises(ValueError, match="model_info is required when model name is not a valid"):
        OpenAIChatCompletionClient(model="llama", api_key=KEY)
    with pytest.raises(ValueError, match="model_info lacks"):
        OpenAIChatCompletionClient(model="llama", api_key=KEY, model_info={"vision": True})  # pyright: ignore[reportArgumentType] # incomplete on purpose
    with pytest.raises(ValueError, match="model is required"):
        OpenAIChatCompletionClient(api_key=KEY)  # pyright: ignore[reportCallIssue] # no model


def test_remaining_tokens_are_the_window_less_the_estimate() -> None:
    known = OpenAIChatCompletionClient(model="gpt-4o-mini-2024-07-18", api_key=KEY)
    assert known.remaining_tokens(HELLO) == 128000 - known.count_tokens(HELLO)
    local = OpenAIChatCompletionClient(model="llama", model_info=LOCAL, api_key=KEY)
    with pytest.raises(ValueError, match="Pass context_window="):
        local.remaining_tokens(HELLO)
    sized = OpenAIChatCompletionClient(
        model="llama", model_info=LOCAL, api_key=KEY, context_window=100
    )
    assert sized.remaining_tokens(HELLO) < 100


def test_the_key_is_in_no_dump_repr_or_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers, query = {"Authorization": KEY, "x-team": "red"}, {"api-key": KEY}
    model = OpenAIChatCompletionClient(
        model="gpt-4o",
        api_key=SecretStr(KEY),
        temperature=0.0,
        default_headers=headers,
        default_query=query,
        extra_headers=headers,
        extra_query=query,
    )
    saved = model.dump_component().to_json()
    assert KEY not in saved + repr(model)
    assert model.dump_component().config == {
        "model": "gpt-4o",
        "temperature": 0.0,
        "default_headers": {"x-team": "red"},
        "extra_headers": {"x-team": "red"},
    }
    with caplog.at_level(logging.DEBUG):
        ask(completion())
    assert KEY not in caplog.text
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert load_component(saved).dump_component().to_json() == saved
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ComponentError, match="No API key. Pass api_key="):
        load_component(saved)


def test_what_autogen_saved_is_loaded_with_the_key_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    saved: dict[str, Any] = {
        "provider": "autogen_ext.models.openai.OpenAIChatCompletionClient",
        "component_type": "model",
        "version": 1,
        "component_version": 1,
        "description": "Chat completion client for OpenAI hosted models.",
        "label": "OpenAIChatCompletionClient",
        "config": {"model": "gpt-4o", "api_key": "**********", "seed": 1, "organization": None},
    }

    async def run() -> str:
        async with HTTPService(completion()) as service:
            config = {**saved["config"], "base_url": f"{service.url}/v1"}
            model = OpenAIChatCompletionClient.load_component({**saved, "config": config})
            await model.create(HELLO)
            await model.close()
            return service.requests[0].headers["authorization"]

    assert asyncio.run(run()) == f"Bearer {KEY}"
