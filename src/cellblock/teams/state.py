"""The saved states of teams. The format is that of AutoGen 0.7.5."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

VERSION = "1.0.0"

StateT = TypeVar("StateT", bound=BaseModel)


def read_state(kind: type[StateT], state: object, owner: str) -> StateT:
    """Return the saved `state` of `owner`. Raise `ValueError` if it is not a `kind`."""
    try:
        return kind.model_validate(state)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        raise ValueError(
            f"The state is not one of {owner}: {place or kind.__name__}: {first['msg']}. "
            "Pass the dict that save_state returned; read JSON text with json.loads first."
        ) from error


class TeamState(BaseModel):
    """The state of a team: that of each participant, and that of its manager, by name.

    The manager is the team's own part, under AutoGen's name for it.
    """

    type: str = "TeamState"
    version: str = VERSION
    agent_states: dict[str, dict[str, Any]]


class ParticipantState(BaseModel):
    """The state of a participant, and the messages that it has not received yet."""

    type: str = "ChatAgentContainerState"
    version: str = VERSION
    agent_state: dict[str, Any] = Field(default_factory=dict[str, Any])
    message_buffer: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])


class ManagerState(BaseModel):
    """The conversation, and how many turns of `max_turns` were taken."""

    type: str
    version: str = VERSION
    message_thread: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    current_turn: int = 0


class RoundRobinManagerState(ManagerState):
    """The state of a `RoundRobinGroupChat`."""

    type: str = "RoundRobinManagerState"
    next_speaker_index: int = 0


class SelectorManagerState(ManagerState):
    """The state of a `SelectorGroupChat`."""

    type: str = "SelectorManagerState"
    previous_speaker: str | None = None


class SwarmManagerState(ManagerState):
    """The state of a `Swarm`."""

    type: str = "SwarmManagerState"
    current_speaker: str = ""
