"""Messages, tools and answers of the chat completions interface to those of `models`. Pure."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast

from ...models.client import ToolChoice
from ...models.image import Image
from ...models.messages import (
    AssistantMessage,
    CreateResult,
    FunctionCall,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from ...models.tool_schema import ToolSchema, name_of
from ..agent import ChatMessage
from .chat_completion import (
    CalledFunction,
    ChatCompletion,
    ChatCompletionChoice,
    ChatCompletionMessage,
    ChatCompletionToolCall,
    ChatCompletionUsage,
)

_FINISH_REASONS = {"function_calls": "tool_calls", "unknown": "stop"}


def to_messages(messages: Iterable[ChatMessage]) -> list[LLMMessage]:
    """Return `messages` as messages of `cellblock.models`.

    Calls of functions in the old style become calls of tools. Raise `ValueError` for a role that
    is not known, and for an image that is not a data URI.
    """
    conversion = _Conversion()
    for message in messages:
        conversion.add(message)
    return conversion.messages


class _Conversion:
    """Converts messages in order; results need the calls before them."""

    def __init__(self) -> None:
        self.messages: list[LLMMessage] = []
        self._names: dict[str, str] = {}  # of the called tools, by call ID
        self._old_calls: list[str] = []  # IDs of calls in the old style that have no result yet

    def add(self, message: ChatMessage) -> None:
        source, content = str(message.get("name") or ""), message.get("content")
        match message.get("role", "user"):
            case "system":
                self.messages.append(SystemMessage(content=_to_text(content)))
            case "user":
                self.messages.append(UserMessage(content=_user_content(content), source=source))
            case "assistant":
                self._add_assistant(message, source)
            case "tool":
                self._add_result(str(message.get("tool_call_id") or ""), _to_text(content))
            case "function":
                self._add_old_result(source, _to_text(content))
            case role:
                raise ValueError(
                    f"A message has the role {role!r}. "
                    "Use system, user, assistant, tool or function."
                )

    def _add_assistant(self, message: ChatMessage, source: str) -> None:
        text = _to_text(message.get("content"))
        listed = cast(list[dict[str, Any]], message.get("tool_calls") or [])
        calls = [_to_call(call) for call in listed]
        if old := message.get("function_call"):
            calls.append(_to_call({"id": f"call_{len(self.messages)}", "function": old}))
            self._old_calls.append(calls[-1].id)
        self._names |= {call.id: call.name for call in calls}
        thought = (text or None) if calls else None
        self.messages.append(
            AssistantMessage(content=calls or text, thought=thought, source=source)
        )

    def _add_old_result(self, name: str, text: str) -> None:
        if self._old_calls:
            self._add_result(self._old_calls.pop(), text)
        else:  # services refuse the result of a call that is not there
            self.messages.append(UserMessage(content=text, source=name))

    def _add_result(self, call_id: str, text: str) -> None:
        name = self._names.get(call_id, "")
        result = FunctionExecutionResult(content=text, name=name, call_id=call_id)
        last = self.messages[-1] if self.messages else None
        if isinstance(last, FunctionExecutionResultMessage):
            last.content.append(result)
        else:
            self.messages.append(FunctionExecutionResultMessage(content=[result]))


def _to_call(call: Mapping[str, Any]) -> FunctionCall:
    function: Mapping[str, Any] = call["function"]
    return FunctionCall(
        id=str(call.get("id") or ""),
        arguments=str(function.get("arguments") or ""),
        name=str(function.get("name") or ""),
        extra_content=call.get("extra_content"),
    )


def _to_text(content: object) -> str:
    """Return the text of `content`, with "<image>" for each image."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return str(content)
    parts = _user_content(cast(list[object], content))
    return "".join(part if isinstance(part, str) else "<image>" for part in parts)


def _user_content(content: object) -> str | list[str | Image]:
    if not isinstance(content, list):
        return _to_text(content)
    return [_to_part(part) for part in cast(list[object], content)]


def _to_part(part: object) -> str | Image:
    match part:
        case str():
            return part
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image_url", "image_url": {"url": str(url)}} | {
            "type": "image_url",
            "image_url": str(url),
        }:
            return Image.from_uri(url)
        case _:
            raise ValueError(
                f"A message has a part of an unknown type: {part!r:.100}. "
                "Use {'type': 'text', …} or {'type': 'image_url', …}."
            )


def to_tools(tools: Iterable[Mapping[str, Any]]) -> list[ToolSchema]:
    """Return `tools` of the interface as tool schemas."""
    return [cast(ToolSchema, dict(tool["function"])) for tool in tools]


def to_tool_choice(choice: object, tools: Sequence[ToolSchema]) -> ToolChoice:
    """Return the value of `tool_choice`, or of `function_call`, as a tool choice.

    Raise `ValueError` if it names none of `tools`.
    """
    match choice:
        case None:
            return "auto"
        case "auto" | "none" | "required":
            return cast(Literal["auto", "none", "required"], choice)
        case {"function": {"name": str(name)}} | {"name": str(name)}:
            for tool in tools:
                if name_of(tool) == name:
                    return tool
        case _:
            pass
    raise ValueError(
        f"tool_choice is {choice!r:.200}. Use 'auto', 'none', 'required' or one of the tools."
    )


def to_completion(
    results: Sequence[CreateResult], model: str, *, old_style: bool = False
) -> ChatCompletion:
    """Return the alternative answers `results`, of which there is at least one.

    With `old_style`, a call of a tool is a `function_call`.
    """
    usage = sum((result.usage for result in results), RequestUsage(0, 0))
    return ChatCompletion(
        id=f"chatcmpl-{uuid.uuid4().hex}",
        choices=[_to_choice(number, result, old_style) for number, result in enumerate(results)],
        is_cached=all(result.cached for result in results),
        created=int(time.time()),
        model=model,
        usage=ChatCompletionUsage(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            total_tokens=usage.prompt_tokens + usage.completion_tokens,
        ),
    )


def _to_choice(number: int, result: CreateResult, old_style: bool) -> ChatCompletionChoice:
    reason = _FINISH_REASONS.get(result.finish_reason, result.finish_reason)
    message = _to_message(result, old_style)
    return ChatCompletionChoice(finish_reason=reason, index=number, message=message)


def _to_message(result: CreateResult, old_style: bool) -> ChatCompletionMessage:
    if isinstance(result.content, str):
        return ChatCompletionMessage(content=result.content)
    calls = [
        ChatCompletionToolCall(
            id=call.id,
            function=CalledFunction(name=call.name, arguments=call.arguments),
            extra_content=call.extra_content,
        )
        for call in result.content
    ]
    if old_style and calls:
        return ChatCompletionMessage(content=result.thought, function_call=calls[0].function)
    return ChatCompletionMessage(content=result.thought, tool_calls=calls)
