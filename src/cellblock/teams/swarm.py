"""Swarm: the speaker hands over to the next one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, ClassVar

from ..agents.base import ChatAgent
from ..agents.messages import AgentMessage, BaseChatMessage, HandoffMessage
from ..cancellation import CancellationToken
from ..errors import AgentError
from .group_chat import BaseGroupChat
from .state import ManagerState, SwarmManagerState, read_state
from .termination import TerminationCondition


class Swarm(BaseGroupChat):
    """A team in which a `HandoffMessage` chooses the next speaker.

    The first participant starts, and the speaker continues until it hands over. Participants are
    agents; the first one must produce handoff messages. Use `HandoffTermination` to hand over to
    the caller, and continue with a `HandoffMessage` to a participant as the task.

    For the other parameters see `BaseGroupChat`.
    """

    DEFAULT_NAME: ClassVar[str] = "Swarm"
    MANAGER_NAME: ClassVar[str] = "SwarmGroupChatManager"

    def __init__(
        self,
        participants: Sequence[ChatAgent],
        *,
        name: str | None = None,
        description: str | None = None,
        termination_condition: TerminationCondition | None = None,
        max_turns: int | None = None,
        runtime: object = None,
        custom_message_types: Sequence[type[AgentMessage]] | None = None,
        emit_team_events: bool = False,
    ) -> None:
        for participant in participants:
            if not isinstance(participant, ChatAgent):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
                raise TypeError(f"Participant {participant} must be a ChatAgent.")
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
        if HandoffMessage not in participants[0].produced_message_types:
            raise ValueError("The first participant must be able to produce a handoff messages.")
        self._current_speaker = participants[0].name

    def _check_start(self, messages: Sequence[BaseChatMessage]) -> str | None:
        stop_reason = super()._check_start(messages)
        if stop_reason is None:
            handoff = _last_handoff(messages) or _last_handoff(self._thread)
            if handoff is not None and handoff.target not in self._participants:
                raise ValueError(self._unknown_target(handoff))
        return stop_reason

    async def _select_speaker(
        self, token: CancellationToken
    ) -> AsyncGenerator[AgentMessage | str, None]:
        handoff = _last_handoff(self._thread)
        if handoff is not None:
            if handoff.target not in self._participants:
                raise AgentError(self._unknown_target(handoff))
            self._current_speaker = handoff.target
        yield self._current_speaker

    def _unknown_target(self, handoff: HandoffMessage) -> str:
        return (
            f"The handoff target {handoff.target} is not one of the participants "
            f"{list(self._participants)}. Stop there with HandoffTermination({handoff.target!r}), "
            "and continue with a HandoffMessage to a participant as the task."
        )

    def _save_turn_order(self) -> ManagerState:
        return SwarmManagerState(current_speaker=self._current_speaker)

    async def _load_turn_order(self, state: Mapping[str, Any]) -> None:
        speaker = read_state(SwarmManagerState, state, self.MANAGER_NAME).current_speaker
        if speaker not in self._participants:
            raise ValueError(f"The saved speaker {speaker!r} is not a participant of this team.")
        self._current_speaker = speaker

    async def _reset_turn_order(self) -> None:
        self._current_speaker = next(iter(self._participants))


def _last_handoff(messages: Sequence[AgentMessage]) -> HandoffMessage | None:
    for message in reversed(messages):
        if isinstance(message, HandoffMessage):
            return message
    return None
