"""Estimate how many tokens a text has, and how many a model accepts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from ...models.token_estimate import BYTES_PER_TOKEN

_TOKEN_LIMITS: Mapping[str, int] = {
    "gpt-3.5-turbo": 16385,
    "gpt-3.5-turbo-0301": 4096,
    "gpt-3.5-turbo-0613": 4096,
    "gpt-3.5-turbo-instruct": 4096,
    "gpt-3.5-turbo-16k": 16385,
    "gpt-3.5-turbo-1106": 16385,
    "gpt-3.5-turbo-0125": 16385,
    "gpt-4": 8192,
    "gpt-4-0314": 8192,
    "gpt-4-0613": 8192,
    "gpt-4-32k": 32768,
    "gpt-4-turbo": 128000,
    "gpt-4-turbo-preview": 128000,
    "gpt-4-1106-preview": 128000,
    "gpt-4-0125-preview": 128000,
    "gpt-4-vision-preview": 128000,
    "gpt-4o": 128000,
    "gpt-4o-mini": 128000,
}


def token_limit(model: str) -> int | None:
    """Return how many tokens the OpenAI model `model` accepts, None if it is not known."""
    return _TOKEN_LIMITS.get(model.replace("gpt-35", "gpt-3.5"))


def count_tokens(content: Any) -> int:
    """Return about how many tokens `content`, text or a list of parts, has. Images count 0."""
    if isinstance(content, str):
        return math.ceil(len(_encoded(content)) / BYTES_PER_TOKEN)
    if isinstance(content, list):
        return sum(map(_count_part, cast(list[Any], content)))
    return 0


def truncate_text(text: str, max_tokens: int) -> str:
    """Return the beginning of `text` that has at most `max_tokens` tokens."""
    if count_tokens(text) <= max_tokens:
        return text
    return _encoded(text)[: max_tokens * BYTES_PER_TOKEN].decode(errors="ignore")


def _encoded(text: str) -> bytes:
    return text.encode(errors="replace")


def _count_part(part: Any) -> int:
    if isinstance(part, dict):
        part = cast(dict[str, Any], part).get("text")
    return count_tokens(part) if isinstance(part, str) else 0
