"""Messages to and from models in the JSON form of the conventions for spans."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

from .messages import (
    AssistantMessage,
    CreateResult,
    FunctionCall,
    FunctionExecutionResultMessage,
    SystemMessage,
    UserMessage,
)

_Part = dict[str, object]


def messages_json(messages: object) -> str | None:
    """Return the messages of a request; None if `messages` is no sequence."""
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        return None
    return _to_json([_message(each) for each in cast("Sequence[object]", messages)])


def answer_json(result: CreateResult, finish_reason: str) -> str:
    """Return the answer of a model."""
    parts = _answer_parts(result.content, result.thought)
    return _to_json([{"role": "assistant", "parts": parts, "finish_reason": finish_reason}])


def text_json(role: str, texts: Sequence[str]) -> str:
    """Return messages that are texts."""
    return _to_json([{"role": role, "parts": [_text(text)]} for text in texts])


def _to_json(messages: list[_Part]) -> str:
    return json.dumps(messages, ensure_ascii=False)


def _message(message: object) -> _Part:
    match message:
        case SystemMessage(content=text):
            return {"role": "system", "parts": [_text(text)]}
        case UserMessage(content=str(text)):
            return {"role": "user", "parts": [_text(text)]}
        case UserMessage(content=contents):
            texts = [part if isinstance(part, str) else "<image>" for part in contents]
            return {"role": "user", "parts": [_text(text) for text in texts]}
        case AssistantMessage(content=content, thought=thought):
            return {"role": "assistant", "parts": _answer_parts(content, thought)}
        case FunctionExecutionResultMessage(content=results):
            parts = [
                {"type": "tool_call_response", "id": each.call_id, "response": each.content}
                for each in results
            ]
            return {"role": "tool", "parts": parts}
        case _:  # the client refuses it
            return {"role": "user", "parts": [_text(repr(message))]}


def _answer_parts(content: str | list[FunctionCall], thought: str | None) -> list[_Part]:
    thoughts: list[_Part] = [{"type": "reasoning", "content": thought}] if thought else []
    if isinstance(content, str):
        return [*thoughts, _text(content)]
    return [*thoughts, *map(_tool_call, content)]


def _tool_call(call: FunctionCall) -> _Part:
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}


def _text(text: str) -> _Part:
    return {"type": "text", "content": text}
