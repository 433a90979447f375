"""AgentRuntime: what an agent needs of its runtime."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from ..cancellation import CancellationToken
from .ids import AgentId, AgentType, TopicId
from .subscriptions import TypeSubscription


class AgentRuntime(ABC):
    """Create agents and deliver messages. See `SingleThreadedAgentRuntime`."""

    @abstractmethod
    async def register_factory(
        self,
        type: str | AgentType,
        agent_factory: Callable[[], Any],
        *,
        expected_class: type[Any] | None = None,
    ) -> AgentType:
        """Create agents of `type` by calling `agent_factory`, which may be asynchronous.

        Raise `ValueError` if `type` is taken, or `agent_factory` is not a function.
        """

    @abstractmethod
    async def add_subscription(self, subscription: TypeSubscription) -> None:
        """Deliver as `subscription` says. Raise `ValueError` if it exists already."""

    @abstractmethod
    async def send_message(
        self,
        message: Any,
        recipient: AgentId,
        *,
        sender: AgentId | None = None,
        cancellation_token: CancellationToken | None = None,
        message_id: str | None = None,
    ) -> Any:
        """Send `message` to one agent and return its answer, once the runtime is started.

        While it is not started, the message waits, and a warning is logged.

        Raise what its handler raises, `UndeliverableException` if its type is not registered, and
        `asyncio.CancelledError` if the token is cancelled.
        """

    @abstractmethod
    async def publish_message(
        self,
        message: Any,
        topic_id: TopicId,
        *,
        sender: AgentId | None = None,
        cancellation_token: CancellationToken | None = None,
        message_id: str | None = None,
    ) -> None:
        """Send `message` to all subscribers of `topic_id` but the sender. Do not wait for them."""
