"""The recorded form of a request and its answer: JSON values, for caches and cassettes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from .messages import CreateResult
from .model_request import ModelRequest, check_messages
from .tool_schema import name_of, schema_of

RequestValues = dict[str, Any]
"""What decides about the answer to a request, as JSON values; see `request_values`."""


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


def request_values(request: ModelRequest) -> RequestValues:
    """Return what decides about the answer, as JSON values. Raise `ValueError` for no message."""
    check_messages(request.messages)
    choice, output = request.tool_choice, request.json_output
    arguments = dict(request.extra_create_args or {})
    return {
        "messages": [message.model_dump(mode="json") for message in request.messages],
        "tools": [dict(schema_of(tool)) for tool in request.tools],
        "tool_choice": choice if isinstance(choice, str) else name_of(choice),
        "json_output": output.model_json_schema() if isinstance(output, type) else output,
        "extra_create_args": to_jsonable_python(arguments, fallback=_describe),
    }


def _describe(value: object) -> object:
    """Return what stands for an argument that JSON cannot express."""
    match value:
        case type() if issubclass(cast(type[object], value), BaseModel):
            return cast(type[BaseModel], value).model_json_schema()
        case _:
            return repr(value)
