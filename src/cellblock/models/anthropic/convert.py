"""Messages and tools to a request of Anthropic's interface; its answer to ours. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ..messages import (
    AssistantMessage,
    CreateResult,
    FinishReasons,
    FunctionCall,
    FunctionExecutionResultMessage,
    JsonObject,
    LLMMessage,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from ..model_request import ModelRequest
from ..structured_output import json_instruction
from ..tool_schema import ToolLike, name_of, schema_of
from .answers import ClaudeBlock, ClaudeMessage, ClaudeUsage

_FINISH_REASONS: dict[str | None, FinishReasons] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "function_calls",
    "refusal": "content_filter",
}
_SERVICE = "anthropic"  # in FunctionCall.extra_content
_THINKING = ("thinking", "redacted_thinking")
# The service refuses text that is empty.
_EMPTY = "(empty)"


def to_system(messages: Sequence[LLMMessage]) -> str:
    """Return the system messages as one text."""
    return "\n".join(m.content for m in messages if isinstance(m, SystemMessage))


def to_messages(messages: Sequence[LLMMessage], *, with_thinking: bool = False) -> list[JsonObject]:
    """Return the other messages in the service's form; those in a row of one role become one.

    `with_thinking` sends the signed thinking before calls of tools as the service sent it.
    """
    converted: list[JsonObject] = []
    for message in messages:
        if isinstance(message, SystemMessage):
            continue
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        blocks = _blocks(message, with_thinking)
        if converted and converted[-1]["role"] == role:
            converted[-1]["content"] += blocks
        else:
            converted.append({"role": role, "content": blocks})
    return converted


def _blocks(
    message: UserMessage | AssistantMessage | FunctionExecutionResultMessage, with_thinking: bool
) -> list[JsonObject]:
    if isinstance(message, FunctionExecutionResultMessage):
        return [
            {
                "type": "tool_result",
                "tool_use_id": result.call_id,
                "content": result.content,
                "is_error": bool(result.is_error),
            }
            for result in message.content
        ]
    if isinstance(message.content, str):
        # The service also refuses an earlier answer that ends with a space.
        is_answer = isinstance(message, AssistantMessage)
        return [_text(message.content.rstrip() if is_answer else message.content)]
    blocks: list[JsonObject] = []
    if isinstance(message, AssistantMessage) and message.thought:
        signed = with_thinking and any(map(_blocks_before, message.content))
        blocks += [] if signed else [_text(message.thought)]
    for part in message.content:
        if isinstance(part, str):
            blocks.append(_text(part))
        elif isinstance(part, FunctionCall):
            blocks += _blocks_before(part) if with_thinking else []
            blocks.append(
                {
                    "type": "tool_use",
                    "id": part.id,
                    "name": part.name,
                    "input": _arguments(part.arguments),
                }
            )
        else:
            source = {"type": "base64", "media_type": part.mime_type, "data": part.to_base64()}
            blocks.append({"type": "image", "source": source})
    return blocks


def _blocks_before(part: object) -> list[JsonObject]:
    """Return the thinking and text that the service sent before a call, if it is to go back."""
    is_call = isinstance(part, FunctionCall)
    return ((part.extra_content if is_call else None) or {}).get(_SERVICE, [])


def lacks_thinking(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if the service would refuse to think about the results of tools at the end.

    What the model said since the user spoke must begin with its thinking.
    """
    first: Mapping[str, Any] | None = None
    for message in reversed(messages):
        if message["role"] == "assistant":
            first = message["content"][0]
        elif all(block["type"] != "tool_result" for block in message["content"]):
            break
    return first is not None and first["type"] not in _THINKING


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text if text.strip() else _EMPTY}


def _arguments(text: str) -> JsonObject:
    """Return the arguments of a call as an object; other models may have written anything."""
    try:
        value: object = json.loads(text or "{}")
    except ValueError:
        value = None
    return cast(JsonObject, value) if isinstance(value, dict) else {"arguments": text}


def to_tools(tools: Sequence[ToolLike]) -> list[JsonObject]:
    """Return `tools` in the service's form."""
    return [
        {
            "name": schema["name"],
            "description": schema.get("description", ""),
            "input_schema": schema.get("parameters", {"type": "object", "properties": {}}),
        }
        for schema in map(schema_of, tools)
    ]


def to_tool_choice(request: ModelRequest) -> JsonObject:
    """Return the tool choice of `request` in the service's form."""
    match request.tool_choice:
        case "auto" | "none" as choice:
            return {"type": choice}
        case "required":
            return {"type": "any"}
        case tool:
            return {"type": "tool", "name": name_of(tool)}


def to_json_fields(request: ModelRequest, *, can_force_tool: bool) -> JsonObject:
    """Return the fields of the request that ask for JSON of a class by a tool, or nothing.

    The model is made to call one tool, whose arguments are the JSON. Where the request has tools
    already, or the service would refuse it, `json_text` instructs the model instead.
    """
    output_type = request.output_type
    if output_type is None or request.tools or not can_force_tool:
        return {}
    tool = {
        "name": _json_tool_name(request),
        "description": "Give the answer.",
        "input_schema": output_type.model_json_schema(),
    }
    return {"tools": [tool], "tool_choice": {"type": "tool", "name": tool["name"]}}


def json_text(request: ModelRequest, *, can_force_tool: bool) -> str:
    """Return the instruction that asks for JSON; "" if none is needed."""
    if not request.json_output or to_json_fields(request, can_force_tool=can_force_tool):
        return ""
    return json_instruction(request.json_output)


def _json_tool_name(request: ModelRequest) -> str:
    name = request.output_type.__name__ if request.output_type else ""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name)[:64]


def to_result(answer: ClaudeMessage, request: ModelRequest) -> CreateResult:
    """Return `answer` as a `CreateResult`. The thought is the thinking, and text with calls."""
    thought = "\n".join(b.thinking for b in answer.content if b.type == "thinking" and b.thinking)
    text = "".join(block.text or "" for block in answer.content if block.type == "text")
    calls = _to_calls(answer.content)
    finish_reason = _FINISH_REASONS.get(answer.stop_reason, "unknown")
    if calls and request.output_type and not request.tools:
        # The tool of `to_json_fields`: its arguments are the answer.
        text, calls, finish_reason = calls[0].arguments, [], "stop"
    elif calls:
        thought, text = "\n\n".join(part for part in (thought, text) if part), ""
    usage = answer.usage or ClaudeUsage()
    prompt_tokens = (
        (usage.input_tokens or 0)
        + (usage.cache_creation_input_tokens or 0)
        + (usage.cache_read_input_tokens or 0)
    )
    return CreateResult(
        finish_reason=finish_reason,
        content=calls or text,
        usage=RequestUsage(prompt_tokens, usage.output_tokens or 0),
        cached=False,
        thought=thought or None,
    )


def _to_calls(blocks: Sequence[ClaudeBlock]) -> list[FunctionCall]:
    """Return the calls of tools; if the model has thought, with what it said before each."""
    has_thought = any(block.type in _THINKING for block in blocks)
    calls, before = list[FunctionCall](), list[JsonObject]()
    for block in blocks:
        if block.type != "tool_use":
            before += _to_blocks(block) if has_thought else []
            continue
        if not block.id or not block.name:
            raise ValueError("a tool call has no ID or no name")
        call = FunctionCall(block.id, json.dumps(block.input or {}), block.name)
        call.extra_content = {_SERVICE: before} if before else None
        calls.append(call)
        before = []
    return calls


def _to_blocks(block: ClaudeBlock) -> list[JsonObject]:
    match block.type:
        case "thinking":
            thinking, signature = block.thinking or "", block.signature or ""
            return [{"type": "thinking", "thinking": thinking, "signature": signature}]
        case "redacted_thinking":
            return [{"type": "redacted_thinking", "data": block.data or ""}]
        case "text" if block.text and block.text.strip():
            return [_text(block.text)]
        case _:
            return []
