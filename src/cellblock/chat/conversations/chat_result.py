"""ChatResult: what a chat leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..agent import ChatMessage
from ..models.usage import UsageSummary


@dataclass
class ChatResult:
    """What `initiate_chat` returns.

    `chat_history` has the messages as the agent that opened the chat stored them. `cost` has the
    usage of the models of both agents, `human_input` what a human typed for the agent that opened
    the chat.
    """

    chat_id: int | None = None
    chat_history: list[ChatMessage] | None = None
    summary: Any = None
    cost: dict[str, UsageSummary] | None = None
    human_input: list[str] | None = None
