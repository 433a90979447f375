"""Team: the interface of several agents that do a task together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from typing import Any, ClassVar

from ..agents.base import Task, TaskResult
from ..agents.messages import AgentMessage
from ..cancellation import CancellationToken
from ..components import Component


class Team(Component, ABC):
    """Several agents that do a task together. A team can be a participant of another team.

    A team keeps its conversation between runs: a run without a task continues it.
    """

    component_type: ClassVar[str] = "team"

    @property
    @abstractmethod
    def name(self) -> str:
        """The name, unique among the participants of a team."""

    @property
    @abstractmethod
    def description(self) -> str:
        """What the team can do. A model reads it to choose a speaker."""

    @abstractmethod
    async def run(
        self,
        *,
        task: Task = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> TaskResult:
        """Do `task` and return the transcript. See `run_stream`."""

    @abstractmethod
    def run_stream(
        self,
        *,
        task: Task = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> AsyncGenerator[AgentMessage | TaskResult, None]:
        """Do `task` and yield each message and event as it happens, then the `TaskResult`.

        `task` is a text, a message or several. None continues where the last run stopped.
        The task's own messages are in the transcript if `output_task_messages`.

        Raise `ValueError` for a wrong task or while the team is running, and
        `asyncio.CancelledError` if the token is cancelled. An exception of a participant is passed
        on. After each of them the team can continue, or be reset.
        """

    @abstractmethod
    async def reset(self) -> None:
        """Forget the conversation, and reset the participants and the termination condition.

        Raise `AgentError` while the team is running.
        """

    @abstractmethod
    async def pause(self) -> None:
        """Call `on_pause` of every participant. The run itself continues."""

    @abstractmethod
    async def resume(self) -> None:
        """Call `on_resume` of every participant."""

    @abstractmethod
    async def save_state(self) -> Mapping[str, Any]:
        """Return the conversation and the states of the participants as JSON values."""

    @abstractmethod
    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `save_state` returned.

        Raise `ValueError` if it does not fit, and `AgentError` while the team is running.
        """
