"""MessageHistoryLimiter: show an agent only the last messages."""

from __future__ import annotations

from ..agent import ChatMessage
from .message_transform import without_leading_results


class MessageHistoryLimiter:
    """Keep the last `max_messages` messages, None for all.

    keep_first_message   keep the first one as well, which has the task

    A result whose tool call is not kept is left out. Raise `ValueError` if `max_messages` is
    less than 1.
    """

    def __init__(self, max_messages: int | None = None, keep_first_message: bool = False) -> None:
        if max_messages is not None and max_messages < 1:
            raise ValueError("max_messages must be None or greater than 1")
        self._max_messages = max_messages
        self._keep_first_message = keep_first_message

    def apply_transform(self, messages: list[ChatMessage]) -> list[ChatMessage]:
        """Return the messages that are kept."""
        limit = self._max_messages
        if limit is None or len(messages) <= limit:
            return messages
        first = messages[:1] if self._keep_first_message else []
        count = limit - len(first)
        last = messages[-count:] if count else []
        return first + without_leading_results(last)

    def get_logs(
        self,
        pre_transform_messages: list[ChatMessage],
        post_transform_messages: list[ChatMessage],
    ) -> tuple[str, bool]:
        """Return how many messages were removed, and True if any."""
        before, after = len(pre_transform_messages), len(post_transform_messages)
        if after >= before:
            return "No messages were removed.", False
        return (
            f"Removed {before - after} messages. "
            f"Number of messages reduced from {before} to {after}.",
            True,
        )
