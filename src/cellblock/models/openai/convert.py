"""Messages and tools to a request of the chat completions protocol; its answer to ours. Pure."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from ..client import ModelInfo, ToolChoice
from ..messages import (
    AssistantMessage,
    CreateResult,
    FinishReasons,
    FunctionCall,
    FunctionExecutionResultMessage,
    LLMMessage,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from ..model_request import ModelRequest
from ..structured_output import json_instruction, strict_schema
from ..tool_schema import ToolLike, name_of, schema_of
from .answers import Completion, MessagePart, ToolCallPart

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_THINK = re.compile(r"\s*<think>(.*?)</think>\s*", re.DOTALL)
_UNFINISHED_THINK = re.compile(r"\s*<think>(.*)", re.DOTALL)
_FINISH_REASONS: dict[str | None, FinishReasons] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "function_calls",
    "function_call": "function_calls",
    "content_filter": "content_filter",
}


def to_messages(
    messages: Sequence[LLMMessage],
    info: ModelInfo,
    *,
    add_name_prefixes: bool = False,
    include_name: bool = True,
) -> list[dict[str, Any]]:
    """Return `messages` in the protocol's form.

    Raise `ValueError` for system messages apart from each other if the model takes only one.
    """
    if info.get("multiple_system_messages") is False:
        messages = _join_system_messages(messages)
    converted: list[dict[str, Any]] = []
    for message in messages:
        match message:
            case SystemMessage():
                converted.append({"role": "system", "content": message.content})
            case UserMessage():
                converted.append(_user_message(message, add_name_prefixes, include_name))
            case AssistantMessage():
                converted.append(_assistant_message(message))
            case FunctionExecutionResultMessage():
                converted += [
                    {"role": "tool", "tool_call_id": result.call_id, "content": result.content}
                    for result in message.content
                ]
    return converted


def _join_system_messages(messages: Sequence[LLMMessage]) -> list[LLMMessage]:
    places = [index for index, message in enumerate(messages) if message.type == "SystemMessage"]
    if not places:
        return list(messages)
    if places[-1] - places[0] >= len(places):
        raise ValueError(
            "Multiple and Not continuous system messages are not supported if "
            "model_info['multiple_system_messages'] is False"
        )
    system = messages[places[0] : places[-1] + 1]
    joined = "\n".join(str(message.content) for message in system)
    return [
        *messages[: places[0]],
        SystemMessage(content=joined),
        *messages[places[-1] + 1 :],
    ]


def _user_message(message: UserMessage, add_prefix: bool, include_name: bool) -> dict[str, Any]:
    prefix = f"{message.source} said:\n" if add_prefix else ""
    content: str | list[dict[str, Any]]
    if isinstance(message.content, str):
        content = prefix + message.content
    else:
        content = []
        for part in message.content:
            if isinstance(part, str):
                content.append({"type": "text", "text": prefix + part})
                prefix = ""
            else:
                content.append(part.to_openai_format())
        if prefix:  # pictures only
            content.insert(0, {"type": "text", "text": prefix})
    # The protocol refuses other names; the source of a message can be any text.
    named = {"name": message.source} if include_name and _NAME.fullmatch(message.source) else {}
    return {"role": "user", **named, "content": content}


def _assistant_message(message: AssistantMessage) -> dict[str, Any]:
    if isinstance(message.content, str):
        return {"role": "assistant", "content": message.content}
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
            **_extra_content(call),
        }
        for call in message.content
    ]
    return {"role": "assistant", "content": message.thought, "tool_calls": calls}


def _extra_content(call: FunctionCall) -> dict[str, Any]:
    """Return the field with signed thoughts, but those of Claude, which has its own protocol."""
    extra = {key: value for key, value in (call.extra_content or {}).items() if key != "anthropic"}
    return {"extra_content": extra} if extra else {}


def to_tools(tools: Sequence[ToolLike]) -> list[dict[str, Any]]:
    """Return `tools` in the protocol's form."""
    schemas = [schema_of(tool) for tool in tools]
    return [
        {
            "type": "function",
            "function": {
                "name": schema["name"],
                "description": schema.get("description", ""),
                "parameters": schema.get("parameters", {}),
                "strict": schema.get("strict", False),
            },
        }
        for schema in schemas
    ]


def to_tool_choice(choice: ToolChoice) -> str | dict[str, Any]:
    """Return `choice` in the protocol's form."""
    if isinstance(choice, str):
        return choice
    return {"type": "function", "function": {"name": name_of(choice)}}


def to_response_format(
    request: ModelRequest, info: ModelInfo, *, schema_in_json_mode: bool
) -> dict[str, Any]:
    """Return the fields of the request that ask for JSON.

    A model without structured output is asked for any JSON, and the schema goes into a system
    message (see `with_instruction`); with `schema_in_json_mode` also in addition to the mode, where
    llama-cpp-python reads it.
    """
    output_type = request.output_type
    if output_type is None:
        if request.json_output is None:
            return {}
        mode = "json_object" if request.json_output else "text"
        return {"response_format": {"type": mode}}
    if info.get("structured_output"):
        name = re.sub(r"[^a-zA-Z0-9_-]", "_", output_type.__name__)[:64]
        schema = {"name": name, "schema": strict_schema(output_type), "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}
    beside = {"schema": output_type.model_json_schema()} if schema_in_json_mode else {}
    return {"response_format": {"type": "json_object", **beside}}


def with_instruction(
    messages: Sequence[LLMMessage], output_type: type[BaseModel]
) -> list[LLMMessage]:
    """Return `messages` with the schema of `output_type` in the first system message."""
    text = json_instruction(output_type)
    if messages and isinstance(messages[0], SystemMessage):
        return [SystemMessage(content=f"{messages[0].content}\n\n{text}"), *messages[1:]]
    return [SystemMessage(content=text), *messages]


def to_result(answer: Completion) -> CreateResult:
    """Return `answer` as a `CreateResult`.

    Reasoning is the thought: the field for it, or a `<think>` part that begins the text. So is the
    text with tool calls.
    """
    choice = answer.choices[0]
    thought, text = _split_thought(choice.message, choice.finish_reason)
    calls = [_to_call(call) for call in choice.message.tool_calls or []]
    if calls:
        thought, text = "\n\n".join(part for part in (thought, text) if part), ""
    usage = answer.usage
    return CreateResult(
        # Some servers say "stop" with tool calls.
        finish_reason="function_calls"
        if calls and choice.finish_reason in (None, "stop")
        else _FINISH_REASONS.get(choice.finish_reason, "unknown"),
        content=calls or text,
        usage=RequestUsage(
            (usage and usage.prompt_tokens) or 0, (usage and usage.completion_tokens) or 0
        ),
        cached=False,
        logprobs=choice.logprobs.content if choice.logprobs else None,
        thought=thought or None,
    )


def _split_thought(message: MessagePart, finish_reason: str | None) -> tuple[str, str]:
    """Return the reasoning and the text of `message`."""
    text = message.content or message.refusal or ""
    if reasoning := message.reasoning_content or message.reasoning:
        return reasoning, text
    if match := _THINK.match(text):
        return match[1].strip(), text[match.end() :]
    if finish_reason == "length" and (match := _UNFINISHED_THINK.match(text)):
        return match[1].strip(), ""
    return "", text


def _to_call(part: ToolCallPart) -> FunctionCall:
    if not part.function.name:
        raise ValueError("a tool call has no name")
    # A name outside these characters would be refused when the call is sent back.
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", part.function.name)[:64]
    # Results refer to the call; some servers send no ID.
    call_id = part.id or f"call_{uuid.uuid4().hex}"
    return FunctionCall(call_id, part.function.arguments or "", name, part.extra_content)


def create_arguments(arguments: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """Return those of `arguments` that belong to the request."""
    return {name: arguments[name] for name in sorted(names) if name in arguments}
