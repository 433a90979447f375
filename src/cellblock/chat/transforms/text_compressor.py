"""TextMessageCompressor: shorten the messages that an agent sees with your own compressor."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..agent import ChatMessage
from .message_transform import FilterDict, change_texts, should_transform
from .token_limiter import count_all

if TYPE_CHECKING:
    from ..models.cache import AbstractCache


@runtime_checkable
class TextCompressor(Protocol):
    """What shortens a text."""

    @property
    def compress_text(self) -> Callable[..., Mapping[str, Any]]:
        """A method `compress_text(text, **compression_params)`.

        It returns a dict with the short text under `compressed_prompt`. `origin_tokens` and
        `compressed_tokens`, if there, say what was saved.
        """
        ...


class TextMessageCompressor:
    """Shorten the texts of messages with `text_compressor`.

    min_tokens           change nothing if the messages have fewer tokens
    compression_params   passed to the compressor
    cache                where results are stored, to use them again
    filter_dict          leave messages with these values, such as `{"role": ["user"]}`
    exclude_filter       False means: change only messages with these values

    AutoGen's compressor LLMLingua is not offered. Raise `ImportError` without a compressor.
    """

    def __init__(
        self,
        text_compressor: TextCompressor | None = None,
        min_tokens: int | None = None,
        compression_params: Mapping[str, Any] | None = None,
        cache: AbstractCache | None = None,
        filter_dict: FilterDict | None = None,
        exclude_filter: bool = True,
    ) -> None:
        if text_compressor is None:
            raise ImportError(
                "LLMLingua, the default compressor of AutoGen, is not offered. Pass an object "
                "with compress_text(text, **params) as text_compressor."
            )
        if min_tokens is not None and min_tokens <= 0:
            raise ValueError("min_tokens must be greater than 0 or None")
        self._text_compressor = text_compressor
        self._min_tokens = min_tokens
        self._compression_args = dict(compression_params or {})
        self._cache = cache
        self._filter_dict = filter_dict
        self._exclude_filter = exclude_filter
        self._recent_tokens_savings = 0

    def apply_transform(self, messages: list[ChatMessage]) -> list[ChatMessage]:
        """Return the messages with short texts."""
        self._recent_tokens_savings = 0
        if self._min_tokens and count_all(messages) < self._min_tokens:
            return messages
        return [
            {**message, "content": change_texts(message.get("content"), self._compressed)}
            if message.get("content")
            and should_transform(message, self._filter_dict, self._exclude_filter)
            else message
            for message in messages
        ]

    def get_logs(
        self,
        pre_transform_messages: list[ChatMessage],
        post_transform_messages: list[ChatMessage],
    ) -> tuple[str, bool]:
        """Return how many tokens the last `apply_transform` saved, and True if any."""
        if self._recent_tokens_savings <= 0:
            return "No tokens saved with text compression.", False
        return f"{self._recent_tokens_savings} tokens saved with text compression.", True

    def _compressed(self, text: str) -> str:
        key = json.dumps(["text compression", text, self._compression_args], default=repr)
        known: list[Any] | None = self._cache.get(key) if self._cache else None
        if known is None:
            result = self._text_compressor.compress_text(text, **self._compression_args)
            saved = result.get("origin_tokens", 0) - result.get("compressed_tokens", 0)
            known = [result["compressed_prompt"], saved if "compressed_tokens" in result else 0]
            if self._cache:
                self._cache.set(key, known)
        self._recent_tokens_savings += known[1]
        return known[0]
