"""What AG2's `run` and `a_run` of an agent return."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from ..agent import ChatMessage
from ..models.usage import UsageSummary
from ..tools.context_variables import ContextVariables
from .chat_result import ChatResult


@dataclass(frozen=True)
class _FinishedRun:
    chat: ChatResult
    variables: ContextVariables | None = None
    uuid: UUID = field(default_factory=uuid4)

    def _last_speaker(self) -> str | None:
        messages = self.chat.chat_history
        return messages[-1].get("name") if messages else None


class RunResponse(_FinishedRun):
    """A chat that `run` has finished. It was printed while it ran."""

    def process(self) -> None:
        """Do nothing: the chat is over."""

    @property
    def messages(self) -> list[ChatMessage]:
        """The messages of the chat."""
        return self.chat.chat_history or []

    @property
    def summary(self) -> Any:
        """The summary of the chat."""
        return self.chat.summary

    @property
    def cost(self) -> dict[str, UsageSummary] | None:
        """The usage of the models."""
        return self.chat.cost

    @property
    def last_speaker(self) -> str | None:
        """The name of the agent that wrote the last message."""
        return self._last_speaker()

    @property
    def context_variables(self) -> ContextVariables | None:
        """The context variables of a group chat."""
        return self.variables


class AsyncRunResponse(_FinishedRun):
    """A chat that `a_run` has finished. What it has is awaited, as in AG2."""

    async def process(self) -> None:
        """Do nothing: the chat is over."""

    @property
    async def messages(self) -> list[ChatMessage]:
        """The messages of the chat."""
        return self.chat.chat_history or []

    @property
    async def summary(self) -> Any:
        """The summary of the chat."""
        return self.chat.summary

    @property
    async def cost(self) -> dict[str, UsageSummary] | None:
        """The usage of the models."""
        return self.chat.cost

    @property
    async def last_speaker(self) -> str | None:
        """The name of the agent that wrote the last message."""
        return self._last_speaker()

    @property
    async def context_variables(self) -> ContextVariables | None:
        """The context variables of a group chat."""
        return self.variables
