"""What a model is shown of the messages that an agent receives."""

from __future__ import annotations

from collections.abc import Sequence

from ..models.contexts import ChatCompletionContext
from .messages import BaseChatMessage, HandoffMessage


async def add_to_context(
    context: ChatCompletionContext, messages: Sequence[BaseChatMessage]
) -> None:
    """Add `messages` to `context`; what a handoff brings along comes before it."""
    for message in messages:
        if isinstance(message, HandoffMessage):
            for earlier in message.context:
                await context.add_message(earlier)
        await context.add_message(message.to_model_message())
