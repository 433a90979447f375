"""The addresses of agents and topics, and the context of a message."""

from __future__ import annotations

import re
from contextvars import ContextVar
from dataclasses import dataclass

from ..cancellation import CancellationToken

_AGENT_TYPE = re.compile(r"[\w\-.]+")
_TOPIC_TYPE = re.compile(r"[\w\-.:=]+")

# The agent that handles a message at the moment, in this task.
current_agent: ContextVar[AgentId | None] = ContextVar("current_agent", default=None)


@dataclass(frozen=True)
class AgentType:
    """The name under which a kind of agent is registered."""

    type: str


@dataclass(frozen=True, init=False)
class AgentId:
    """The address of one agent: the type that it is registered under, and a key.

    The runtime creates an agent when its ID is used for the first time.
    """

    type: str
    key: str

    def __init__(self, type: str | AgentType, key: str) -> None:
        name = type.type if isinstance(type, AgentType) else type
        if not _AGENT_TYPE.fullmatch(name):
            raise ValueError(f"Invalid agent type {name!r}. Use letters, digits, '_', '-' and '.'.")
        object.__setattr__(self, "type", name)
        object.__setattr__(self, "key", key)

    @classmethod
    def from_str(cls, agent_id: str) -> AgentId:
        """Return the ID with the text "type/key"."""
        name, slash, key = agent_id.partition("/")
        if not slash:
            raise ValueError(f"Invalid agent ID {agent_id!r}. Write it as 'type/key'.")
        return cls(name, key)

    def __str__(self) -> str:
        return f"{self.type}/{self.key}"


@dataclass(frozen=True)
class TopicId:
    """A topic to publish messages to: what it is about, and which instance of it."""

    type: str
    source: str

    def __post_init__(self) -> None:
        if not _TOPIC_TYPE.fullmatch(self.type):
            raise ValueError(
                f"Invalid topic type {self.type!r}. Use letters, digits, '_', '-', '.', ':', '='."
            )

    @classmethod
    def from_str(cls, topic_id: str) -> TopicId:
        """Return the topic with the text "type/source"."""
        name, slash, source = topic_id.partition("/")
        if not slash:
            raise ValueError(f"Invalid topic ID {topic_id!r}. Write it as 'type/source'.")
        return cls(name, source)

    def __str__(self) -> str:
        return f"{self.type}/{self.source}"


class DefaultTopicId(TopicId):
    """The topic of `default_subscription`.

    The source is the key of the agent that handles a message at the moment, or "default".
    """

    def __init__(self, type: str = "default", source: str | None = None) -> None:
        agent = current_agent.get()
        super().__init__(type, source or (agent.key if agent else "default"))


@dataclass
class MessageContext:
    """Where a message comes from.

    sender               the agent that sent it; None if it came from outside
    topic_id             the topic that it was published to; None if it was sent to one agent
    is_rpc               True if the sender waits for the answer
    cancellation_token   cancels the handling of the message
    message_id           identifies the message
    """

    sender: AgentId | None
    topic_id: TopicId | None
    is_rpc: bool
    cancellation_token: CancellationToken
    message_id: str
