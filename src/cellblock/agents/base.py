"""The interfaces of agents, and BaseChatAgent: the base class of your own agents.

The names are those of `autogen_agentchat.base` and `autogen_agentchat.agents` 0.7.5.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel, SerializeAsAny

from ..cancellation import CancellationToken
from ..components import Component
from ..errors import AgentError
from .agent_spans import trace_agent, trace_creation
from .cancellable import until_cancelled
from .messages import AgentMessage, BaseAgentEvent, BaseChatMessage, TextMessage
from .one_run import OneRun

Task = str | BaseChatMessage | Sequence[BaseChatMessage] | None


@dataclass(kw_only=True)
class Response:
    """The answer of an agent. `inner_messages` are the events that led to it."""

    chat_message: BaseChatMessage
    inner_messages: Sequence[AgentMessage] | None = None


class TaskResult(BaseModel):
    """The transcript of a task, in order. `stop_reason` says why it ended; None if unknown."""

    messages: Sequence[SerializeAsAny[AgentMessage]]
    stop_reason: str | None = None


class TaskRunner(Protocol):
    """Something that does a task: an agent or a team."""

    async def run(
        self,
        *,
        task: Task = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> TaskResult:
        """Do `task` and return the transcript.

        `task` is a text, a message or several. None continues where the last run stopped.
        The task's own messages are in the transcript if `output_task_messages`.
        """
        ...

    def run_stream(
        self,
        *,
        task: Task = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> AsyncGenerator[AgentMessage | TaskResult, None]:
        """Do `task` and yield each message and event as it happens, then the `TaskResult`."""
        ...


class ChatAgent(Component, ABC):
    """The interface of an agent: takes the messages that are new to it, and returns an answer.

    An agent keeps its own state: the caller passes each message once.
    """

    component_type: ClassVar[str] = "agent"

    @property
    @abstractmethod
    def name(self) -> str:
        """The name, unique in a team."""

    @property
    @abstractmethod
    def description(self) -> str:
        """What the agent can do. A model reads it to choose a speaker."""

    @property
    @abstractmethod
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """The types of `Response.chat_message`."""

    @abstractmethod
    async def on_messages(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> Response:
        """Answer `messages`."""

    @abstractmethod
    def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[AgentMessage | Response, None]:
        """Yield what happens as it happens, and the `Response` last."""

    @abstractmethod
    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Forget all messages."""

    @abstractmethod
    async def on_pause(self, cancellation_token: CancellationToken) -> None:
        """Prepare for a pause of the team."""

    @abstractmethod
    async def on_resume(self, cancellation_token: CancellationToken) -> None:
        """Prepare to continue after a pause."""

    @abstractmethod
    async def save_state(self) -> Mapping[str, Any]:
        """Return the state as JSON values."""

    @abstractmethod
    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `save_state` returned."""

    @abstractmethod
    async def close(self) -> None:
        """Release what the agent holds."""


class BaseChatAgent(ChatAgent, ABC):
    """Base of your own agents: implement `on_messages`, `on_reset` and `produced_message_types`.

    Raise `ValueError` if `name` is not a Python identifier.
    """

    def __init__(self, name: str, description: str) -> None:
        if not isinstance(name, str) or not name.isidentifier():  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            raise ValueError(f"The agent name {name!r} must be a valid Python identifier.")
        self._name = name
        self._description = description
        self._one_run = OneRun(name)
        trace_creation(self)

    @property
    def name(self) -> str:
        """The name, unique in a team."""
        return self._name

    @property
    def description(self) -> str:
        """What the agent can do."""
        return self._description

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[AgentMessage | Response, None]:
        """Yield the inner messages of `on_messages`, then its response.

        Raise `AgentError` if it returned something else.
        """
        response = await self.on_messages(messages, cancellation_token)
        if not isinstance(response, Response):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            raise AgentError(
                f"{self.name}.on_messages must return a Response, not {type(response).__name__}. "
                "Return Response(chat_message=TextMessage(content=..., source=self.name))."
            )
        for message in response.inner_messages or []:
            yield message
        yield response

    async def run(
        self,
        *,
        task: Task = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> TaskResult:
        """Do `task` and return the transcript. See `TaskRunner`."""
        async for item in self.run_stream(
            task=task,
            cancellation_token=cancellation_token,
            output_task_messages=output_task_messages,
        ):
            if isinstance(item, TaskResult):
                return item
        raise AssertionError("run_stream ends with a TaskResult")

    async def run_stream(
        self,
        *,
        task: Task = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> AsyncGenerator[AgentMessage | TaskResult, None]:
        """Do `task` and yield what happens, then the `TaskResult`. See `TaskRunner`."""
        transcript: list[AgentMessage] = []
        messages = task_messages(task)
        if output_task_messages:
            for message in messages:
                transcript.append(message)
                yield message
        token = cancellation_token or CancellationToken()
        answer = until_cancelled(self.on_messages_stream(messages, token), token)
        stream = trace_answer(self, messages, answer)
        async with aclosing(stream):
            async for item in stream:
                message = item.chat_message if isinstance(item, Response) else item
                if not is_transient(message):
                    transcript.append(message)
                yield message
        yield TaskResult(messages=transcript)

    async def on_pause(self, cancellation_token: CancellationToken) -> None:
        """Do nothing."""

    async def on_resume(self, cancellation_token: CancellationToken) -> None:
        """Do nothing."""

    async def save_state(self) -> Mapping[str, Any]:
        """Return an empty state."""
        return {"type": "BaseState", "version": "1.0.0"}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""


def trace_answer(
    agent: ChatAgent,
    messages: Sequence[BaseChatMessage],
    answer: AsyncGenerator[AgentMessage | Response, None],
) -> AsyncGenerator[AgentMessage | Response, None]:
    """Return what `on_messages_stream` of `agent` yields, which happens in a span."""
    return trace_agent(
        "invoke_agent", agent, messages, answer, Response, lambda item: [item.chat_message]
    )


def is_transient(message: AgentMessage) -> bool:
    """Return True if `message` is streamed but kept in no transcript."""
    return isinstance(message, BaseAgentEvent) and message.is_transient


def task_messages(task: Task) -> list[BaseChatMessage]:
    """Return `task` as messages; text comes from "user". Raise `ValueError` for anything else."""
    match task:
        case None:
            return []
        case str():
            return [TextMessage(content=task, source="user")]
        case BaseChatMessage():
            return [task]
        case [*items] if items:
            for item in items:
                if not isinstance(item, BaseChatMessage):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
                    raise ValueError(
                        f"Invalid message type in the task list: {type(item).__name__}. "
                        "Pass messages such as TextMessage(content=..., source='user')."
                    )
            return items
        case []:
            raise ValueError("Task list cannot be empty.")
        case _:
            raise ValueError(
                f"A task is a text, a message or a list of messages, not {type(task).__name__}."
            )
