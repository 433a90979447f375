"""Spans of requests to chat models, whatever client makes them."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol, cast

from ..tracing import Attributes, Span, Value, genai_span, is_inside, is_on
from .messages import CreateResult
from .span_messages import answer_json, messages_json

_OPERATION = "chat"
_FINISH_REASONS = {"function_calls": "tool_call"}  # the conventions' name
# The attribute of a parameter, by the names that services give it.
_PARAMETERS = {
    "frequency_penalty": "frequency_penalty",
    "max_completion_tokens": "max_tokens",
    "max_tokens": "max_tokens",
    "presence_penalty": "presence_penalty",
    "seed": "seed",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
}
_Answer = AsyncGenerator[str | CreateResult, None]


class _Client(Protocol):
    def span_attributes(self, extra: Mapping[str, Any]) -> Attributes: ...


def trace_requests(client_class: type) -> None:
    """Let the methods `create` and `create_stream` that `client_class` defines begin spans."""
    for name, traced in (("create", _traced_create), ("create_stream", _traced_stream)):
        method = vars(client_class).get(name)
        if inspect.isfunction(method):
            setattr(client_class, name, traced(method))


def parameter_attributes(arguments: Mapping[str, Any]) -> dict[str, Value]:
    """Return the attributes for the `arguments` of a request that the conventions name."""
    return {
        f"gen_ai.request.{attribute}": arguments[name]
        for name, attribute in _PARAMETERS.items()
        if isinstance(arguments.get(name), int | float)
    }


def _traced_create(
    create: Callable[..., Awaitable[CreateResult]],
) -> Callable[..., Awaitable[CreateResult]]:
    @functools.wraps(create)
    async def traced(self: _Client, *arguments: Any, **options: Any) -> CreateResult:
        if not _begins_span():
            return await create(self, *arguments, **options)
        with _begin(self, arguments, options) as request:
            result = await create(self, *arguments, **options)
            _record(request, result)
        return result

    return traced


def _traced_stream(create_stream: Callable[..., _Answer]) -> Callable[..., _Answer]:
    @functools.wraps(create_stream)
    def traced(self: _Client, *arguments: Any, **options: Any) -> _Answer:
        answer = create_stream(self, *arguments, **options)
        return _stream(self, answer, arguments, options) if _begins_span() else answer

    return traced


def _begins_span() -> bool:
    """Return False for the requests that a client makes for another client."""
    return is_on() and not is_inside(_OPERATION)


async def _stream(
    client: _Client, answer: _Answer, arguments: Sequence[Any], options: Mapping[str, Any]
) -> _Answer:
    request = _begin(client, arguments, options)
    request.set("gen_ai.request.stream", True)
    steps = request.stream(
        _timed(answer, request), CreateResult, lambda result: _record(request, result)
    )
    async with aclosing(steps):
        async for item in steps:
            yield item


async def _timed(answer: _Answer, request: Span) -> _Answer:
    began, is_first = time.monotonic(), True
    async with aclosing(answer):
        async for item in answer:
            if is_first:
                request.set("gen_ai.response.time_to_first_chunk", time.monotonic() - began)
                is_first = False
            yield item


def _begin(client: _Client, arguments: Sequence[Any], options: Mapping[str, Any]) -> Span:
    extra = options.get("extra_create_args")
    known = client.span_attributes(
        cast("Mapping[str, Any]", extra) if isinstance(extra, Mapping) else {}
    )
    model = known.get("gen_ai.request.model")
    request = genai_span(
        _OPERATION,
        model if isinstance(model, str) else None,
        {**known, "gen_ai.output.type": "json" if options.get("json_output") else None},
        is_client=True,
    )
    if request.records_content:
        messages = arguments[0] if arguments else options.get("messages")
        request.set("gen_ai.input.messages", messages_json(messages))
    return request


def _record(request: Span, result: CreateResult) -> None:
    reason = _FINISH_REASONS.get(result.finish_reason, result.finish_reason)
    request.set("gen_ai.response.finish_reasons", [reason])
    request.set("gen_ai.usage.input_tokens", result.usage.prompt_tokens)
    request.set("gen_ai.usage.output_tokens", result.usage.completion_tokens)
    request.set("cellblock.cached", result.cached)
    if request.records_content:
        request.set("gen_ai.output.messages", answer_json(result, reason))
