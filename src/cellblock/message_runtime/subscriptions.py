"""Which agents receive the messages that are published to a topic."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, TypeVar, overload

from .ids import AgentId, AgentType, TopicId


class Subscribes(Protocol):
    """A class of agents that says which topics it subscribes to."""

    subscribed_topic_types: ClassVar[tuple[str, ...]]


AgentT = TypeVar("AgentT", bound=Subscribes)


@dataclass(frozen=True, init=False)
class TypeSubscription:
    """Agents of `agent_type` receive topics of `topic_type`: one agent for each source."""

    topic_type: str
    agent_type: str
    id: str = field(compare=False)

    def __init__(self, topic_type: str, agent_type: str | AgentType, id: str | None = None) -> None:
        object.__setattr__(self, "topic_type", topic_type)
        name = agent_type.type if isinstance(agent_type, AgentType) else agent_type
        object.__setattr__(self, "agent_type", name)
        object.__setattr__(self, "id", id or str(uuid.uuid4()))

    def is_match(self, topic_id: TopicId) -> bool:
        """Return True if the subscription is about `topic_id`."""
        return topic_id.type == self.topic_type

    def map_to_agent(self, topic_id: TopicId) -> AgentId:
        """Return the agent that receives messages of `topic_id`."""
        return AgentId(self.agent_type, topic_id.source)


class DefaultSubscription(TypeSubscription):
    """The subscription to topics of type "default"."""

    def __init__(
        self, topic_type: str = "default", agent_type: str | AgentType | None = None
    ) -> None:
        if agent_type is None:
            raise ValueError("DefaultSubscription needs agent_type: the type of the subscriber.")
        super().__init__(topic_type, agent_type)


def type_subscription(topic_type: str) -> Callable[[type[AgentT]], type[AgentT]]:
    """Subscribe each agent type that is registered with the class to topics of `topic_type`."""

    def decorate(cls: type[AgentT]) -> type[AgentT]:
        cls.subscribed_topic_types = (*cls.subscribed_topic_types, topic_type)
        return cls

    return decorate


@overload
def default_subscription(cls: type[AgentT]) -> type[AgentT]: ...
@overload
def default_subscription(cls: None = None) -> Callable[[type[AgentT]], type[AgentT]]: ...
def default_subscription(
    cls: type[AgentT] | None = None,
) -> type[AgentT] | Callable[[type[AgentT]], type[AgentT]]:
    """Subscribe each agent type that is registered with the class to topics of type "default"."""
    decorate = type_subscription("default")
    return decorate if cls is None else decorate(cls)
