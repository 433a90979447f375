"""AgentCapability: the base of what can be added to an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..conversable_agent import ConversableAgent


class AgentCapability:
    """Something that an agent gains, such as by hooks. Implement `add_to_agent`."""

    def add_to_agent(self, agent: ConversableAgent) -> None:
        """Add the capability to `agent`. Raise `NotImplementedError` unless a subclass does it."""
        raise NotImplementedError
