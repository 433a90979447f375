"""GroupChat: the agents of a group chat, what they said, and who speaks next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from ..agent import Agent, ChatMessage
from ..conversable_agent import ConversableAgent
from ..errors import AgentNameConflict
from ..message_text import content_str
from .speaker_selection import SpeakerSelection


@dataclass
class GroupChat(SpeakerSelection):
    """A conversation of several agents, which a `GroupChatManager` runs.

    - `agents`, `messages`: the participants, and what they said.
    - `max_round`: how many messages at most.
    - `admin_name`: which agent speaks next when Ctrl-C interrupts another one.
    - `func_call_filter`: after a tool call, only agents that can execute it may speak.
    - `speaker_selection_method`: `"auto"` (a model chooses), `"manual"` (a person chooses),
      `"random"`, `"round_robin"`, or a function (last speaker, group chat) that returns the next
      speaker, the name of a method, or None for the end.
    - `allow_repeat_speaker`: True, False, or the agents that may speak twice in a row.
    - `allowed_or_disallowed_speaker_transitions` with `speaker_transitions_type` (`"allowed"` or
      `"disallowed"`): for an agent, which agents may or may not speak after it. The chat ends
      after an agent that no other may follow.
    - `enable_clear_history`: a person's message can hold `CLEAR HISTORY [agent] [number]`; see
      `GroupChatManager.clear_agents_history`.
    - `send_introductions`: send every agent the names and descriptions of all at the start.
    - `select_speaker_*`, `max_retries_for_selecting_speaker`, `role_for_select_speaker_messages`:
      how the model is asked; `{roles}` and `{agentlist}` in templates are replaced.

    Raise ValueError if parameters contradict each other.
    """

    DEFAULT_INTRO_MSG: ClassVar[str] = (
        "Hello everyone. We have assembled a great team today to answer questions and solve "
        "tasks. In attendance are:"
    )

    @property
    def agent_names(self) -> list[str]:
        """The names of the agents."""
        return [agent.name for agent in self.agents]

    def reset(self) -> None:
        """Forget the messages."""
        self.messages.clear()

    def append(self, message: ChatMessage, speaker: Agent) -> None:
        """Add what `speaker` said. The message gets the speaker's name and its content as text."""
        if message["role"] != "function":  # a function message has the function's name
            message["name"] = speaker.name
        message["content"] = content_str(message["content"])
        self.messages.append(message)

    def agent_by_name(
        self, name: str, recursive: bool = False, raise_on_name_conflict: bool = False
    ) -> Agent | None:
        """Return the agent with this name, None if there is none.

        `recursive` also searches group chats whose managers are in this one.
        `raise_on_name_conflict` raises `AgentNameConflict` if several agents have the name.
        """
        agents = self.nested_agents() if recursive else self.agents
        found = [agent for agent in agents if agent.name == name]
        if raise_on_name_conflict and len(found) > 1:
            raise AgentNameConflict
        return found[0] if found else None

    def nested_agents(self) -> list[Agent]:
        """Return the agents of this group chat, then those of the group chats in it."""
        agents: list[Agent] = []
        unsearched: list[GroupChat] = [self]
        for chat in unsearched:
            agents += (agent for agent in chat.agents if agent not in agents)
            inner = chat._nested_group_chats()
            unsearched += (each for each in inner if not any(each is known for known in unsearched))
        return agents

    def _nested_group_chats(self) -> list[GroupChat]:
        """Return the group chats whose managers are agents of this one."""
        found = [cast(object, getattr(agent, "groupchat", None)) for agent in self.agents]
        return [chat for chat in found if isinstance(chat, GroupChat)]

    def conversable_agents(self) -> list[ConversableAgent]:
        """Return the agents that are `ConversableAgent`s."""
        agents = cast(list[object], self.agents)
        return [agent for agent in agents if isinstance(agent, ConversableAgent)]

    def introductions_msg(self, agents: list[Agent] | None = None) -> str:
        """Return the message that introduces the agents to each other."""
        return f"{self.DEFAULT_INTRO_MSG}\n\n{self._participant_roles(agents)}"
