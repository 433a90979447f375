"""GroupChatSettings: the parameters of a group chat, and its agents in their order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, cast

from ..agent import Agent, ChatMessage, Configuration
from ..errors import UndefinedNextAgent
from .speaker_transitions import (
    Transitions,
    check_graph_validity,
    invert_disallowed_to_allowed,
    transitions_with_repeats,
)

logger = logging.getLogger(__name__)

SELECT_SPEAKER_MESSAGE = (
    "You moderate a conversation of several roles. The roles are:\n"
    "{roles}\n\n"
    "Read the conversation that follows. Then choose, out of {agentlist}, the role that should "
    "speak next. Answer with the name of that role and nothing else."
)
SELECT_SPEAKER_PROMPT = (
    "Read the above conversation. Then select the next role from {agentlist} to play. "
    "Only return the role."
)
_HOW_TO_CHOOSE = (
    "Choose it like this, the first rule that fits:\n"
    "1. Your answer speaks as one role: that role.\n"
    "2. Your answer says which role is next: that role.\n"
    "3. Otherwise: the role that your answer names first.\n"
)
_EXACT_NAME = "Write the name exactly as it is here, in the same case, without a reason."
SEVERAL_NAMES = (
    f"Your answer names more than one role. Name only the next one.\n{_HOW_TO_CHOOSE}{_EXACT_NAME}"
)
NO_NAME = (
    "Your answer names none of the roles. Name the next one.\n"
    f"{_HOW_TO_CHOOSE}The roles are {{agentlist}}. {_EXACT_NAME}"
)

SpeakerSelectionMethod = str | Callable[[Agent, Any], "Agent | str | None"]
"""A name of a method, or a function (last speaker, group chat) that returns the next speaker."""


@dataclass
class GroupChatSettings:
    """The parameters of a group chat, with the names and defaults of AutoGen 0.2."""

    agents: list[Agent]
    messages: list[ChatMessage]
    max_round: int = 10
    admin_name: str = "Admin"
    func_call_filter: bool = True
    speaker_selection_method: SpeakerSelectionMethod = "auto"
    max_retries_for_selecting_speaker: int = 2
    allow_repeat_speaker: bool | list[Agent] | None = None
    allowed_or_disallowed_speaker_transitions: Transitions | None = None
    speaker_transitions_type: Literal["allowed", "disallowed"] | None = None
    enable_clear_history: bool = False
    send_introductions: bool = False
    select_speaker_message_template: str = SELECT_SPEAKER_MESSAGE
    select_speaker_prompt_template: str | None = SELECT_SPEAKER_PROMPT
    select_speaker_auto_multiple_template: str = SEVERAL_NAMES
    select_speaker_auto_none_template: str = NO_NAME
    select_speaker_transform_messages: Any = None
    select_speaker_auto_verbose: bool = False
    select_speaker_auto_model_client_cls: Any = None
    select_speaker_auto_llm_config: Configuration | None = None
    role_for_select_speaker_messages: str = "system"

    allowed_speaker_transitions_dict: Transitions = field(init=False)

    _VALID_SPEAKER_SELECTION_METHODS: ClassVar[list[str]] = [
        "auto",
        "manual",
        "random",
        "round_robin",
    ]
    _VALID_SPEAKER_TRANSITIONS_TYPE: ClassVar[list[str | None]] = ["allowed", "disallowed", None]

    def __post_init__(self) -> None:
        self._check_repeat_and_transitions()
        self._set_up_transitions()
        for name in (
            "select_speaker_message_template",
            "select_speaker_auto_multiple_template",
            "select_speaker_auto_none_template",
            "role_for_select_speaker_messages",
        ):
            if not getattr(self, name):
                raise ValueError(f"{name} cannot be empty or None.")
        # Both mean that the conversation itself is the question.
        self.select_speaker_prompt_template = self.select_speaker_prompt_template or None
        self._check_retries()
        if not isinstance(cast(object, self.select_speaker_auto_verbose), bool):
            raise ValueError("select_speaker_auto_verbose cannot be None or non-bool")
        transform = self.select_speaker_transform_messages
        if transform is not None and not hasattr(transform, "add_to_agent"):
            raise ValueError("select_speaker_transform_messages must be None or MessageTransforms.")

    def _check_retries(self) -> None:
        retries = cast(object, self.max_retries_for_selecting_speaker)
        if not isinstance(retries, int):
            raise ValueError("max_retries_for_selecting_speaker cannot be None or non-int")
        if retries < 0:
            raise ValueError(
                "max_retries_for_selecting_speaker must be greater than or equal to zero"
            )

    def _check_repeat_and_transitions(self) -> None:
        repeat = cast(object, self.allow_repeat_speaker)
        if repeat is not None and not isinstance(repeat, bool | list):
            raise ValueError("GroupChat allow_repeat_speaker should be a bool or a list of Agents.")
        kind = cast(object, self.speaker_transitions_type)
        lowered = kind.lower() if isinstance(kind, str) else kind
        if lowered not in self._VALID_SPEAKER_TRANSITIONS_TYPE:
            raise ValueError(
                f"GroupChat speaker_transitions_type is set to '{kind}'. It should be one of "
                f"{self._VALID_SPEAKER_TRANSITIONS_TYPE} (case insensitive). "
            )
        self.speaker_transitions_type = cast(Any, lowered)
        if self.allowed_or_disallowed_speaker_transitions is None:
            return
        if repeat is not None:
            raise ValueError(
                "Don't provide both allowed_or_disallowed_speaker_transitions and "
                "allow_repeat_speaker in group chat. Please set one of them to None."
            )
        if lowered is None:
            raise ValueError(
                "GroupChat allowed_or_disallowed_speaker_transitions is not None, but "
                "speaker_transitions_type is None. Please set speaker_transitions_type to either "
                "'allowed' or 'disallowed'."
            )

    def _set_up_transitions(self) -> None:
        given = self.allowed_or_disallowed_speaker_transitions
        if given is None:
            if self.allow_repeat_speaker is None:
                self.allow_repeat_speaker = True
            allowed = transitions_with_repeats(self.agents, self.allow_repeat_speaker)
        elif self.speaker_transitions_type == "disallowed":
            allowed = invert_disallowed_to_allowed(given, self.agents)
        else:
            allowed = given
        check_graph_validity(allowed, self.agents)
        self.allowed_speaker_transitions_dict = allowed

    def next_agent(self, agent: Agent, agents: list[Agent] | None = None) -> Agent:
        """Return the first agent after `agent` in the list that is one of `agents`.

        Raise `UndefinedNextAgent` if there is none, or if `agents` has others than the group.
        """
        candidates = self.agents if agents is None else agents
        start = self.agents.index(agent) + 1 if agent in self.agents else 0
        if all(candidate in self.agents for candidate in candidates):
            for candidate in [*self.agents[start:], *self.agents[:start]]:
                if candidate in candidates:
                    return candidate
        raise UndefinedNextAgent

    def _participant_roles(self, agents: list[Agent] | None = None) -> str:
        roles: list[str] = []
        for agent in self.agents if agents is None else agents:
            if not agent.description.strip():
                logger.warning(
                    "The agent '%s' has an empty description, and may not work well with "
                    "GroupChat.",
                    agent.name,
                )
            roles.append(f"{agent.name}: {agent.description}".strip())
        return "\n".join(roles)
