"""How much of a conversation the model can read, as far as it is known."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ....errors import ModelError
from ....models.client import ChatCompletionClient
from ....models.messages import LLMMessage, SystemMessage

_SHARE_OF_MESSAGES = 0.9  # of the window; the rest is for the answer
_SHARE_THAT_STAYS = 0.7  # of what the service refused as too long, if it does not say by how much
_NEARLY_FULL = 0.8
# What services say about the window, and about the request that they refuse.
_SIZE = re.compile(
    r"(?:context (?:length|window|size)(?: is| of)? \(?|> )(\d+)(?! in the)", re.IGNORECASE
)
_REQUESTED = re.compile(
    r"(?:resulted in|requested(?: tokens)?|request|too long:|prompt of) \(?(\d+)", re.IGNORECASE
)


class ContextWindow:
    """The window of the model of `client`. `system` is the message before each conversation."""

    def __init__(self, client: ChatCompletionClient, system: SystemMessage) -> None:
        self._client = client
        self._size: int | None = None
        self._known_size: int | None = None  # without asking the service
        self.limit: int | None = None  # of the conversation, in tokens as the client counts them
        try:
            self._size = self._known_size = client.remaining_tokens([])
        except ValueError:  # it is not known until the service refuses a request
            return
        self.limit = max(1, int(self._size * _SHARE_OF_MESSAGES) - client.count_tokens([system]))

    def add_refusal(self, messages: Sequence[LLMMessage], error: ModelError) -> None:
        """Learn that the service refused `messages` as too long."""
        size, requested = _SIZE.search(str(error)), _REQUESTED.search(str(error))
        share = _SHARE_THAT_STAYS
        if size:
            self._size = int(size[1])
            if requested and int(requested[1]) > self._size:
                share = _SHARE_OF_MESSAGES * self._size / int(requested[1])
        self.limit = max(1, int(self._client.count_tokens(messages) * share))

    def is_smaller_than(self, messages: Sequence[LLMMessage]) -> bool:
        """Return True if `messages` need not be sent, because they are known not to fit."""
        size = self._known_size
        return size is not None and self._client.count_tokens(messages) > size

    def nearly_full(self, tokens: int) -> int | None:
        """Return how many percent of the window `tokens` are, if that is much and known."""
        if not self._size or tokens < _NEARLY_FULL * self._size:
            return None
        return min(100, 100 * tokens // self._size)
