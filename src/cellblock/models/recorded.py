"""What is kept of a request and its answer: JSON values, for caches and cassettes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from .client import JsonOutput, ToolChoice
from .messages import CreateResult, LLMMessage
from .model_request import check_messages
from .tool_schema import ToolLike, name_of, schema_of


class RecordedAnswer(BaseModel):
    """An answer, and the pieces of text in which it was streamed; None if it was not."""

    result: CreateResult
    pieces: list[str] | None = None

    def cached_result(self) -> CreateResult:
        """Return the answer, marked as cached."""
        return self.result.model_copy(update={"cached": True}, deep=True)

    def cached_stream(self) -> Iterator[str | CreateResult]:
        """Yield the pieces, then the answer. A text that was not streamed is one piece."""
        content = self.result.content
        if self.pieces is not None:
            yield from self.pieces
        elif isinstance(content, str):
            yield content
        yield self.cached_result()


def request_values(
    messages: Sequence[LLMMessage],
    tools: Sequence[ToolLike],
    tool_choice: ToolChoice,
    json_output: JsonOutput,
    extra_create_args: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return what decides about the answer, as JSON values. Raise `ValueError` for no message."""
    check_messages(messages)
    is_class = isinstance(json_output, type)
    return {
        "messages": [message.model_dump(mode="json") for message in messages],
        "tools": [dict(schema_of(tool)) for tool in tools],
        "tool_choice": tool_choice if isinstance(tool_choice, str) else name_of(tool_choice),
        "json_output": json_output.model_json_schema() if is_class else json_output,
        "extra_create_args": to_jsonable_python(dict(extra_create_args or {}), fallback=_describe),
    }


def _describe(value: object) -> object:
    """Return what stands for an argument that JSON cannot express."""
    match value:
        case type() if issubclass(cast(type[object], value), BaseModel):
            return cast(type[BaseModel], value).model_json_schema()
        case _:
            return repr(value)
