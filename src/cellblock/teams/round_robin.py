"""RoundRobinGroupChat: participants speak in turn."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, ClassVar

from ..agents.messages import AgentMessage
from ..cancellation import CancellationToken
from .group_chat import BaseGroupChat, Participant
from .state import ManagerState, RoundRobinManagerState, read_state
from .termination import TerminationCondition


class RoundRobinGroupChat(BaseGroupChat):
    """A team whose participants speak in turn, in the order of `participants`.

    For the parameters see `BaseGroupChat`. Without `termination_condition` and `max_turns` it never
    stops.
    """

    DEFAULT_NAME: ClassVar[str] = "RoundRobinGroupChat"
    MANAGER_NAME: ClassVar[str] = "RoundRobinGroupChatManager"

    def __init__(
        self,
        participants: Sequence[Participant],
        *,
        name: str | None = None,
        description: str | None = None,
        termination_condition: TerminationCondition | None = None,
        max_turns: int | None = None,
        runtime: object = None,
        custom_message_types: Sequence[type[AgentMessage]] | None = None,
        emit_team_events: bool = False,
    ) -> None:
        super().__init__(
            participants,
            name=name,
            description=description,
            termination_condition=termination_condition,
            max_turns=max_turns,
            runtime=runtime,
            custom_message_types=custom_message_types,
            emit_team_events=emit_team_events,
        )
        self._next_speaker_index = 0

    async def _select_speaker(
        self, token: CancellationToken
    ) -> AsyncGenerator[AgentMessage | str, None]:
        yield list(self._participants)[self._next_speaker_index]

    def _end_turn(self, speaker: str) -> None:
        super()._end_turn(speaker)
        self._next_speaker_index = (self._next_speaker_index + 1) % len(self._participants)

    def _save_turn_order(self) -> ManagerState:
        return RoundRobinManagerState(next_speaker_index=self._next_speaker_index)

    async def _load_turn_order(self, state: Mapping[str, Any]) -> None:
        index = read_state(RoundRobinManagerState, state, self.MANAGER_NAME).next_speaker_index
        self._next_speaker_index = index % len(self._participants)

    async def _reset_turn_order(self) -> None:
        self._next_speaker_index = 0
