"""Agents that send each other messages, by address or by topic, in one process.

The names are those of `autogen_core` 0.7.5.
"""

from .agent_runtime import AgentRuntime
from .ids import AgentId, AgentType, DefaultTopicId, MessageContext, TopicId
from .routed_agent import RoutedAgent, event, message_handler, rpc
from .runtime import (
    CantHandleException,
    DefaultInterventionHandler,
    DropMessage,
    InterventionHandler,
    MessageDroppedException,
    SingleThreadedAgentRuntime,
    UndeliverableException,
)
from .subscriptions import (
    DefaultSubscription,
    TypeSubscription,
    default_subscription,
    type_subscription,
)

__all__ = [
    "AgentId",
    "AgentRuntime",
    "AgentType",
    "CantHandleException",
    "DefaultInterventionHandler",
    "DefaultSubscription",
    "DefaultTopicId",
    "DropMessage",
    "InterventionHandler",
    "MessageContext",
    "MessageDroppedException",
    "RoutedAgent",
    "SingleThreadedAgentRuntime",
    "TopicId",
    "TypeSubscription",
    "UndeliverableException",
    "default_subscription",
    "event",
    "message_handler",
    "rpc",
    "type_subscription",
]
