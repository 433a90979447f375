"""The termination conditions. Their names and texts are those of AutoGen 0.7.5."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Sequence

from ..agents.messages import (
    AgentMessage,
    BaseChatMessage,
    HandoffMessage,
    StopMessage,
    TextMessage,
    ToolCallExecutionEvent,
)
from ..models.messages import RequestUsage
from .termination import BaseTerminationCondition

FunctionalTerminationFunc = Callable[[Sequence[AgentMessage]], bool | Awaitable[bool]]


class StopMessageTermination(BaseTerminationCondition):
    """Stop at a `StopMessage`."""

    def __init__(self) -> None:
        super().__init__()

    async def find_reason(self, messages: Sequence[AgentMessage]) -> str | None:
        """See `BaseTerminationCondition`."""
        if any(isinstance(message, StopMessage) for message in messages):
            return "Stop message received"
        return None


class MaxMessageTermination(BaseTerminationCondition):
    """Stop after `max_messages` messages, those of the task included.

    Events count if `include_agent_event`. Raise `ValueError` if `max_messages` is less than 1.
    """

    def __init__(self, max_messages: int, include_agent_event: bool = False) -> None:
        if max_messages < 1:
            raise ValueError(f"max_messages must be at least 1, not {max_messages}.")
        super().__init__(max_messages=max_messages, include_agent_event=include_agent_event)
        self._max_messages = max_messages
        self._include_agent_event = include_agent_event
        self._count = 0

    async def find_reason(self, messages: Sequence[AgentMessage]) -> str | None:
        """See `BaseTerminationCondition`."""
        self._count += sum(
            self._include_agent_event or isinstance(message, BaseChatMessage)
            for message in messages
        )
        if self._count < self._max_messages:
            return None
        return (
            f"Maximum number of messages {self._max_messages} reached, "
            f"current message count: {self._count}"
        )

    async def reset(self) -> None:
        """Start again at 0 messages."""
        await super().reset()
        self._count = 0


class TextMentionTermination(BaseTerminationCondition):
    """Stop if `text` is in a message or an event, from one of `sources` (None: from anyone).

    Raise `ValueError` if `text` is empty.
    """

    def __init__(self, text: str, sources: Sequence[str] | None = None) -> None:
        if not text:
            raise ValueError(
                "The text of TextMentionTermination is empty, so it would stop at any message. "
                "Pass the word to stop at, such as 'TERMINATE'."
            )
        sources = None if sources is None else list(sources)
        super().__init__(text=text, sources=sources)
        self._text = text
        self._sources = sources

    async def find_reason(self, messages: Sequence[AgentMessage]) -> str | None:
        """See `BaseTerminationCondition`."""
        for message in messages:
            if self._sources is not None and message.source not in self._sources:
                continue
            if self._text in message.to_text():
                return f"Text '{self._text}' mentioned"
        return None


class TextMessageTermination(BaseTerminationCondition):
    """Stop at a `TextMessage` from `source` (None: from anyone)."""

    def __init__(self, source: str | None = None) -> None:
        super().__init__(source=source)
        self._source = source

    async def find_reason(self, messages: Sequence[AgentMessage]) -> str | None:
        """See `BaseTerminationCondition`."""
        for message in messages:
            if isinstance(message, TextMessage) and self._source in (None, message.source):
                return f"Text message received from '{message.source}'"
        return None


class TokenUsageTermination(BaseTerminationCondition):
    """Stop when the models used as many tokens. Raise `ValueError` if no limit is given."""

    def __init__(
        self,
        max_total_token: int | None = None,
        max_prompt_token: int | None = None,
        max_completion_token: int | None = None,
    ) -> None:
        if max_total_token is None and max_prompt_token is None and max_completion_token is None:
            raise ValueError(
                "At least one of max_total_token, max_prompt_token, or max_completion_token "
                "must be provided"
            )
        super().__init__(
            max_total_token=max_total_token,
            max_prompt_token=max_prompt_token,
            max_completion_token=max_completion_token,
        )
        self._limits = (max_total_token, max_prompt_token, max_completion_token)
        self._used = RequestUsage(0, 0)

    async def find_reason(self, messages: Sequence[AgentMessage]) -> str | None:
        """See `BaseTerminationCondition`."""
        for message in messages:
            if message.models_usage is not None:
                self._used += message.models_usage
        prompt, completion = self._used.prompt_tokens, self._used.completion_tokens
        used = (prompt + completion, prompt, completion)
        for limit, tokens in zip(self._limits, used, strict=True):
            if limit is not None and tokens >= limit:
                return (
                    f"Token usage limit reached, total token count: {prompt + completion}, "
                    f"prompt token count: {prompt}, completion token count: {completion}."
                )
        return None

    async def reset(self) -> None:
        """Start again at 0 tokens."""
        await super().reset()
        self._used = RequestUsage(0, 0)


class HandoffTermination(BaseTerminationCondition):
    """Stop at a `HandoffMessage` to `target`."""

    def __init__(self, target: str) -> None:
        super().__init__(target=target)
        self._target = target

    async def find_reason(self, messages: Sequence[AgentMessage]) -> str | None:
        """See `BaseTerminationCondition`."""
        for message in messages:
            if isinstance(message, HandoffMessage) and message.target == self._target:
                return f"Handoff to {self._target} from {message.source} detected."
        return None


class TimeoutTermination(BaseTerminationCondition):
    """Stop at the first message later than `timeout_seconds` after the creation or the reset.

    A turn that is under way is not interrupted. Cancel the run's token for that.
    """

    def __init__(self, timeout_seconds: float) -> None:
        super().__init__(timeout_seconds=timeout_seconds)
        self._timeout_seconds = timeout_seconds
        self._start_time = time.monotonic()

    async def find_reason(self, messages: Sequence[AgentMessage]) -> str | None:
        """See `BaseTerminationCondition`."""
        if time.monotonic() - self._start_time < self._timeout_seconds:
            return None
        return f"Timeout of {self._timeout_seconds} seconds reached"

    async def reset(self) -> None:
        """Start again at 0 seconds."""
        await super().reset()
        self._start_time = time.monotonic()


class ExternalTermination(BaseTerminationCondition):
    """Stop after the turn in which `set` was called, for example by a button."""

    def __init__(self) -> None:
        super().__init__()
        self._is_set = False

    def set(self) -> None:
        """Request to stop."""
        self._is_set = True

    async def find_reason(self, messages: Sequence[AgentMessage]) -> str | None:
        """See `BaseTerminationCondition`."""
        return "External termination requested" if self._is_set else None

    async def reset(self) -> None:
        """Start again, without a request."""
        await super().reset()
        self._is_set = False


class SourceMatchTermination(BaseTerminationCondition):
    """Stop after a message or an event from one of `sources`."""

    def __init__(self, sources: Sequence[str]) -> None:
        super().__init__(sources=list(sources))
        self._sources = list(sources)

    async def find_reason(self, messages: Sequence[AgentMessage]) -> str | None:
        """See `BaseTerminationCondition`."""
        for message in messages:
            if message.source in self._sources:
                return f"'{message.source}' answered"
        return None


class FunctionCallTermination(BaseTerminationCondition):
    """Stop after the tool `function_name` was called."""

    def __init__(self, function_name: str) -> None:
        super().__init__(function_name=function_name)
        self._function_name = function_name

    async def find_reason(self, messages: Sequence[AgentMessage]) -> str | None:
        """See `BaseTerminationCondition`."""
        for message in messages:
            if isinstance(message, ToolCallExecutionEvent) and any(
                result.name == self._function_name for result in message.content
            ):
                return f"Function '{self._function_name}' was executed."
        return None


class FunctionalTermination(BaseTerminationCondition):
    """Stop if `func(messages)` returns true. `func` may be async.

    It gets only the messages and events since its last call, not the whole conversation.

    It cannot be saved.
    """

    def __init__(self, func: FunctionalTerminationFunc) -> None:
        super().__init__()
        self._func = func

    async def find_reason(self, messages: Sequence[AgentMessage]) -> str | None:
        """See `BaseTerminationCondition`."""
        answer = self._func(messages)
        if inspect.isawaitable(answer):
            answer = await answer
        return "Functional termination condition met" if answer else None
