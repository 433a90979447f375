"""A real model, SmolLM2 behind llama.cpp's server, through OpenAIChatCompletionClient.

Assertions are on what arrives, not on whether the small model is right.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel, Field

from cellblock import CancellationToken
from cellblock.errors import ModelError, ModelOutputError
from cellblock.models import (
    AssistantMessage,
    CreateResult,
    FunctionCall,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    ModelInfo,
    OpenAIChatCompletionClient,
    SystemMessage,
    ToolSchema,
    UserMessage,
)

# The model shares the processors with other tests. It is built once, which takes minutes.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ResultT = TypeVar("ResultT")
INFO = ModelInfo(
    vision=False,
    function_calling=True,
    json_output=True,
    family="unknown",
    structured_output=True,
    multiple_system_messages=False,
)
QUESTION = [
    SystemMessage(content="You are a helpful assistant."),
    UserMessage(content="Count from one to ten.", source="user"),
]
WEATHER = ToolSchema(
    name="weather",
    description="Get the weather of a city.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
)


class Decision(BaseModel):
    """Whether to try again."""

    reason: str = Field(max_length=30)
    retry: bool


def use(
    url: str, ask: Callable[[OpenAIChatCompletionClient], Awaitable[ResultT]], **arguments: Any
) -> ResultT:
    """Return what `ask` returns for a client of the local model."""
    settings: dict[str, Any] = {
        "model": "smollm2",
        "model_info": INFO,
        "max_tokens": 20,
        "temperature": 0.0,
        "max_retries": 0,
        **arguments,
    }

    async def run() -> ResultT:
        model = OpenAIChatCompletionClient(api_key="none", base_url=url, **settings)
        try:
            return await ask(model)
        finally:
            await model.close()

    return asyncio.run(run())


def test_it_answers_and_counts_tokens(local_model_url: str) -> None:
    async def ask(model: OpenAIChatCompletionClient) -> CreateResult:
        result = await model.create(QUESTION)
        assert model.total_usage() == result.usage
        # The estimate is near what the model's own tokenizer counts.
        assert 0.5 < model.count_tokens(QUESTION) / result.usage.prompt_tokens < 2
        return result

    result = use(local_model_url, ask)
    assert isinstance(result.content, str)
    assert result.content
    assert result.finish_reason in ("stop", "length")
    assert 0 < result.usage.completion_tokens <= 20


def test_a_stream_is_the_answer_in_pieces(local_model_url: str) -> None:
    async def ask(model: OpenAIChatCompletionClient) -> list[str | CreateResult]:
        return [item async for item in model.create_stream(QUESTION)]

    *pieces, result = use(local_model_url, ask)
    assert isinstance(result, CreateResult)
    assert len(pieces) > 3
    assert "".join(map(str, pieces)) == result.content
    assert result.usage.completion_tokens >= len(pieces) - 1


def test_it_can_be_asked_again_after_a_cancelled_answer(local_model_url: str) -> None:
    async def read_rest(stream: AsyncIterator[object]) -> None:
        async for _ in stream:
            pass

    async def ask(model: OpenAIChatCompletionClient) -> CreateResult:
        token = CancellationToken()
        extra = {"max_tokens": 2000, "ignore_eos": True}
        stream = model.create_stream(QUESTION, cancellation_token=token, extra_create_args=extra)
        assert isinstance(await anext(stream), str)
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await read_rest(stream)  # a piece can have arrived before
        # The server answers one request at a time, so it has stopped the other.
        return await model.create(QUESTION)

    assert use(local_model_url, ask).content


@pytest.mark.parametrize("structured_output", [True, False])
def test_json_of_a_class_arrives(local_model_url: str, structured_output: bool) -> None:
    info: ModelInfo = {**INFO, "structured_output": structured_output}

    async def ask(model: OpenAIChatCompletionClient) -> CreateResult:
        message = UserMessage(content="Should we retry?", source="user")
        return await model.create([message], json_output=Decision)

    result = use(local_model_url, ask, model_info=info, max_tokens=200)
    Decision.model_validate_json(str(result.content))


def test_json_that_is_cut_off_is_an_error(local_model_url: str) -> None:
    async def ask(model: OpenAIChatCompletionClient) -> CreateResult:
        return await model.create(QUESTION, json_output=Decision)

    with pytest.raises(ModelOutputError, match="cut off: raise max_tokens"):
        use(local_model_url, ask, max_tokens=3)


def test_it_calls_a_tool_and_reads_the_result(local_model_url: str) -> None:
    # So small a model calls a tool when it has seen a call.
    messages: list[LLMMessage] = [
        UserMessage(content="Weather in Rome?", source="user"),
        *tool_turn(FunctionCall(id="c0", name="weather", arguments='{"city": "Rome"}'), "Rain."),
        AssistantMessage(content="Rain.", source="bot"),
        UserMessage(content="Weather in Paris?", source="user"),
    ]

    async def ask(model: OpenAIChatCompletionClient) -> CreateResult:
        arguments: dict[str, Any] = {"tools": [WEATHER], "tool_choice": "required"}
        result = await model.create(messages, **arguments)
        streamed = [item async for item in model.create_stream(messages, **arguments)][-1]
        assert isinstance(streamed, CreateResult)
        calls = [call_of(result), call_of(streamed)]
        return await model.create([*messages, *tool_turn(calls[0], "Sun.")])

    assert use(local_model_url, ask, max_tokens=100).content


def tool_turn(call: FunctionCall, output: str) -> list[LLMMessage]:
    result = FunctionExecutionResult(content=output, name=call.name, call_id=call.id)
    return [
        AssistantMessage(content=[call], source="bot"),
        FunctionExecutionResultMessage(content=[result]),
    ]


def call_of(answer: CreateResult) -> FunctionCall:
    assert answer.finish_reason == "function_calls"
    assert isinstance(answer.content, list)
    [call] = answer.content
    assert isinstance(call, FunctionCall)
    assert call.name == "weather"
    assert "city" in json.loads(call.arguments)
    return call


def test_wrong_addresses_are_model_errors(local_model_url: str) -> None:
    async def ask(model: OpenAIChatCompletionClient) -> None:
        with pytest.raises(ModelError) as caught:
            await model.create(QUESTION)
        assert caught.value.status == 404

    use(f"{local_model_url}/nowhere", ask)


def test_a_request_that_is_too_long_is_a_model_error(local_model_url: str) -> None:
    async def ask(model: OpenAIChatCompletionClient) -> None:
        message = UserMessage(content="word " * 10_000, source="user")
        assert model.remaining_tokens([message]) < 0
        with pytest.raises(ModelError, match="status 400") as caught:
            await model.create([message])
        assert caught.value.status == 400

    use(local_model_url, ask, context_window=4096)
