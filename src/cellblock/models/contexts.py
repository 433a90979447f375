"""Contexts: they keep a conversation, and choose which of its messages a model sees."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from pydantic import TypeAdapter, ValidationError

from ..components import Component
from .client import ChatCompletionClient
from .messages import AssistantMessage, FunctionExecutionResultMessage, LLMMessage, UserMessage
from .tool_schema import ToolSchema

_MESSAGES = TypeAdapter(list[LLMMessage])
_TOOLS = TypeAdapter(list[dict[str, Any]])


class ChatCompletionContext(Component, ABC):
    """Keep the messages of a conversation, `initial_messages` first.

    Subclass it to choose in your own way: implement `get_messages`.
    """

    component_type: ClassVar[str] = "chat_completion_context"

    def __init__(self, initial_messages: Sequence[LLMMessage] | None = None) -> None:
        self._initial_messages = None if initial_messages is None else list(initial_messages)
        self._messages = list(initial_messages or [])

    async def add_message(self, message: LLMMessage) -> None:
        """Add `message` at the end."""
        self._messages.append(message)

    @abstractmethod
    async def get_messages(self) -> list[LLMMessage]:
        """Return the messages for the model, in a new list.

        The results of tool calls are never without the message that requested the calls, since
        services refuse them.
        """

    async def clear(self) -> None:
        """Remove all messages, the initial ones as well."""
        self._messages = []

    async def save_state(self) -> Mapping[str, Any]:
        """Return the messages as JSON values."""
        return {"messages": _MESSAGES.dump_python(self._messages, mode="json")}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Replace the messages by those that `save_state` returned.

        Raise `ValueError` and change nothing if they are damaged.
        """
        try:
            self._messages = _MESSAGES.validate_python(state["messages"])
        except (KeyError, ValidationError) as error:
            raise ValueError(
                f"The messages in the state of a context are damaged: {error}"
            ) from error

    def _to_config(self) -> dict[str, object]:
        if self._initial_messages is None:
            return {}
        return {"initial_messages": _MESSAGES.dump_python(self._initial_messages, mode="json")}

    @classmethod
    def _from_config(cls, config: Mapping[str, Any]) -> Self:
        saved = config.get("initial_messages")
        messages = None if saved is None else _MESSAGES.validate_python(saved)
        return cls(**{**config, "initial_messages": messages})


class UnboundedChatCompletionContext(ChatCompletionContext):
    """Show the model all messages."""

    async def get_messages(self) -> list[LLMMessage]:
        """Return all messages."""
        return list(self._messages)


class BufferedChatCompletionContext(ChatCompletionContext):
    """Show the model the last `buffer_size` messages."""

    def __init__(
        self, buffer_size: int, initial_messages: Sequence[LLMMessage] | None = None
    ) -> None:
        super().__init__(initial_messages)
        self._buffer_size = _positive("buffer_size", buffer_size)

    async def get_messages(self) -> list[LLMMessage]:
        """Return at most the last `buffer_size` messages."""
        return _without_leading_results(self._messages[-self._buffer_size :])

    def _to_config(self) -> dict[str, object]:
        return {"buffer_size": self._buffer_size, **super()._to_config()}


class HeadAndTailChatCompletionContext(ChatCompletionContext):
    """Show the model the first `head_size` and the last `tail_size` messages.

    A message between them says how many were skipped.
    """

    def __init__(
        self,
        head_size: int,
        tail_size: int,
        initial_messages: Sequence[LLMMessage] | None = None,
    ) -> None:
        super().__init__(initial_messages)
        self._head_size = _positive("head_size", head_size)
        self._tail_size = _positive("tail_size", tail_size)

    async def get_messages(self) -> list[LLMMessage]:
        """Return the head, the number of messages skipped, and the tail."""
        if len(self._messages) <= self._head_size + self._tail_size:
            return list(self._messages)
        head = self._messages[: self._head_size]
        if _requests_tools(head[-1]):
            head.pop()  # its results are skipped
        tail = _without_leading_results(self._messages[-self._tail_size :])
        skipped = len(self._messages) - len(head) - len(tail)
        marker = UserMessage(content=f"Skipped {skipped} messages.", source="System")
        return [*head, marker, *tail]

    def _to_config(self) -> dict[str, object]:
        sizes = {"head_size": self._head_size, "tail_size": self._tail_size}
        return {**sizes, **super()._to_config()}


class TokenLimitedChatCompletionContext(ChatCompletionContext):
    """Show the model as many messages as fit; messages in the middle are left out first.

    model_client   counts the tokens
    token_limit    the most tokens; None means as many as the model client says it has left
    tool_schema    tools that are counted as well
    """

    def __init__(
        self,
        model_client: ChatCompletionClient,
        *,
        token_limit: int | None = None,
        tool_schema: Sequence[ToolSchema] | None = None,
        initial_messages: Sequence[LLMMessage] | None = None,
    ) -> None:
        super().__init__(initial_messages)
        self._model_client = model_client
        self._token_limit = None if token_limit is None else _positive("token_limit", token_limit)
        self._tool_schema = list(tool_schema or [])

    async def get_messages(self) -> list[LLMMessage]:
        """Return the messages that fit; none if not even one does."""
        messages = list(self._messages)
        while messages and not self._fits(messages):
            _remove_middle(messages)
        return _without_leading_results(messages)

    def _fits(self, messages: list[LLMMessage]) -> bool:
        client, tools = self._model_client, self._tool_schema
        if self._token_limit is None:
            return client.remaining_tokens(messages, tools=tools) >= 0
        return client.count_tokens(messages, tools=tools) <= self._token_limit

    def _to_config(self) -> dict[str, object]:
        return {
            "model_client": self._model_client.dump_component().to_dict(),
            "token_limit": self._token_limit,
            "tool_schema": self._tool_schema,
            **super()._to_config(),
        }

    @classmethod
    def _from_config(cls, config: Mapping[str, Any]) -> Self:
        client = ChatCompletionClient.load_component(config["model_client"])
        tools = _TOOLS.validate_python(config.get("tool_schema") or [])
        return super()._from_config({**config, "model_client": client, "tool_schema": tools})


def _requests_tools(message: LLMMessage) -> bool:
    return isinstance(message, AssistantMessage) and not isinstance(message.content, str)


def _without_leading_results(messages: list[LLMMessage]) -> list[LLMMessage]:
    """Return `messages` from the first one that is not a result of tool calls."""
    start = 0
    while start < len(messages) and isinstance(messages[start], FunctionExecutionResultMessage):
        start += 1
    return messages[start:]


def _remove_middle(messages: list[LLMMessage]) -> None:
    """Remove the message in the middle; tool calls and their results only together."""
    start = len(messages) // 2
    is_result = isinstance(messages[start], FunctionExecutionResultMessage)
    if is_result and start and _requests_tools(messages[start - 1]):
        start -= 1
    rest = messages[start + 1 :]
    del messages[start:]
    messages += _without_leading_results(rest)


def _positive(name: str, value: object) -> int:
    if not isinstance(value, int):  # from a saved configuration
        raise ValueError(f"{name} must be an int, not {value!r:.100}.")
    if value <= 0:
        raise ValueError(f"{name} must be greater than 0.")
    return value
