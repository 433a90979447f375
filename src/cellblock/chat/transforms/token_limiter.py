"""MessageTokenLimiter: cut messages that are long, and leave out the first ones."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable

from ..agent import ChatMessage
from ..printing import print_notice
from .message_transform import (
    FilterDict,
    change_texts,
    should_transform,
    without_leading_results,
)
from .text_tokens import count_tokens, token_limit, truncate_text

_UNLIMITED = sys.maxsize


class MessageTokenLimiter:
    """Cut each message to `max_tokens_per_message`, and keep the last ones with `max_tokens`.

    The message that has no room any more is cut, and those before it are left out. A result whose
    tool call is not kept is left out as well. Tool calls and images are not counted.

    min_tokens       change nothing if the messages have fewer tokens
    model            cap `max_tokens` to what this OpenAI model accepts
    filter_dict      do not cut messages with these values, such as `{"role": ["user"]}`
    exclude_filter   False means: cut only messages with these values

    Tokens are estimated: four bytes of UTF-8 count as one. Raise `ValueError` if a number is
    negative, or `min_tokens` is more than `max_tokens`.
    """

    def __init__(
        self,
        max_tokens_per_message: int | None = None,
        max_tokens: int | None = None,
        min_tokens: int | None = None,
        model: str = "gpt-3.5-turbo-0613",
        filter_dict: FilterDict | None = None,
        exclude_filter: bool = True,
    ) -> None:
        self._max_tokens_per_message = _checked_limit(max_tokens_per_message, model)
        self._max_tokens = _checked_limit(max_tokens, model)
        self._min_tokens = _checked_minimum(min_tokens, self._max_tokens)
        self._filter_dict = filter_dict
        self._exclude_filter = exclude_filter

    def apply_transform(self, messages: list[ChatMessage]) -> list[ChatMessage]:
        """Return the messages that are kept, cut."""
        if self._min_tokens and count_all(messages) < self._min_tokens:
            return messages
        kept: list[ChatMessage] = []
        room = self._max_tokens
        for message in reversed(messages):
            if should_transform(message, self._filter_dict, self._exclude_filter):
                message = _cut(message, self._max_tokens_per_message)
                if count_tokens(message.get("content")) > room:
                    if room > 0 or not kept:
                        kept.insert(0, _fitted(message, room))
                    break
            kept.insert(0, message)
            room -= count_tokens(message.get("content"))
        return without_leading_results(kept)

    def get_logs(
        self,
        pre_transform_messages: list[ChatMessage],
        post_transform_messages: list[ChatMessage],
    ) -> tuple[str, bool]:
        """Return how many tokens were cut, and True if any."""
        before, after = count_all(pre_transform_messages), count_all(post_transform_messages)
        if after >= before:
            return "No tokens were truncated.", False
        return (
            f"Truncated {before - after} tokens. Number of tokens reduced from {before} to {after}",
            True,
        )


def count_all(messages: Iterable[ChatMessage]) -> int:
    """Return about how many tokens the contents of `messages` have."""
    return sum(count_tokens(message.get("content")) for message in messages)


def _cut(message: ChatMessage, max_tokens: int) -> ChatMessage:
    """Return `message` with each of its texts cut to `max_tokens`."""
    if "content" not in message:
        return message
    content = change_texts(message["content"], lambda text: truncate_text(text, max_tokens))
    return {**message, "content": content}


def _fitted(message: ChatMessage, room: int) -> ChatMessage:
    """Return `message` with its texts cut so that they have at most `room` tokens together."""
    room = max(room, 0)

    def take(text: str) -> str:
        nonlocal room
        taken = truncate_text(text, room)
        room -= count_tokens(taken)
        return taken

    return {**message, "content": change_texts(message["content"], take)}


def _checked_limit(limit: float | None, model: str) -> int:
    if limit is None:
        return _UNLIMITED
    if limit < 0:
        raise ValueError(
            "max_tokens and max_tokens_per_message must be None or greater than or equal to 0"
        )
    accepted = token_limit(model)
    if accepted is not None and limit > accepted:
        print_notice(
            f"Max token was set to {limit}, but {model} can only accept {accepted} tokens. "
            f"Capping it to {accepted}.",
            "yellow",
        )
        return accepted
    return _UNLIMITED if math.isinf(limit) else int(limit)


def _checked_minimum(minimum: int | None, maximum: int) -> int:
    if minimum is None:
        return 0
    if minimum < 0:
        raise ValueError("min_tokens must be None or greater than or equal to 0.")
    if minimum > maximum:
        raise ValueError("min_tokens must not be more than max_tokens.")
    return minimum
