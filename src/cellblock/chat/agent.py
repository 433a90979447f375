"""Agent: what takes part in a chat."""

from __future__ import annotations

from typing import Any, Literal, Protocol, runtime_checkable

ChatMessage = dict[str, Any]
"""A message as the OpenAI chat API has it: `content`, `role`, `name`, `tool_calls`, …"""
Reply = tuple[bool, str | ChatMessage | None]
"""What a reply function returns: True if the reply is final, and the reply."""
Configuration = dict[str, Any] | Literal[False]
"""An `llm_config` or a `code_execution_config`; False for none."""
HumanInputMode = Literal["ALWAYS", "TERMINATE", "NEVER"]


@runtime_checkable
class Agent(Protocol):
    """What takes part in a chat: it has a name, receives messages and replies to them."""

    @property
    def name(self) -> str:
        """The name, unique among the agents of a chat."""
        ...

    @property
    def description(self) -> str:
        """What the agent is for; a group chat selects speakers by it."""
        ...

    def send(
        self, message: ChatMessage | str, recipient: Agent, request_reply: bool | None = None
    ) -> None:
        """Send `message` to `recipient`."""
        ...

    async def a_send(
        self, message: ChatMessage | str, recipient: Agent, request_reply: bool | None = None
    ) -> None:
        """Send `message` to `recipient`."""
        ...

    def receive(
        self, message: ChatMessage | str, sender: Agent, request_reply: bool | None = None
    ) -> None:
        """Receive `message` from `sender`, and reply unless `request_reply` is False."""
        ...

    async def a_receive(
        self, message: ChatMessage | str, sender: Agent, request_reply: bool | None = None
    ) -> None:
        """Receive `message` from `sender`, and reply unless `request_reply` is False."""
        ...

    def generate_reply(
        self, messages: list[ChatMessage] | None = None, sender: Agent | None = None, **kwargs: Any
    ) -> str | ChatMessage | None:
        """Return the reply to `messages`, None for no reply."""
        ...

    async def a_generate_reply(
        self, messages: list[ChatMessage] | None = None, sender: Agent | None = None, **kwargs: Any
    ) -> str | ChatMessage | None:
        """Return the reply to `messages`, None for no reply."""
        ...


@runtime_checkable
class LLMAgent(Agent, Protocol):
    """An agent that asks a chat model."""

    @property
    def system_message(self) -> str:
        """The instructions for the model."""
        ...

    def update_system_message(self, system_message: str) -> None:
        """Replace the instructions."""
        ...
