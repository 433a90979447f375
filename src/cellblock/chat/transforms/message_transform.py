"""MessageTransform: what changes the messages that an agent sees, and which of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

from ..agent import ChatMessage

FilterDict = Mapping[str, Any]
"""The values of a message's keys that a filter looks for: `{"role": ["user"]}`, or one value."""


@runtime_checkable
class MessageTransform(Protocol):
    """A change to the messages that an agent sees. The stored messages stay as they are."""

    def apply_transform(self, messages: list[ChatMessage]) -> list[ChatMessage]:
        """Return the messages that the agent sees. Does not change `messages` or its elements."""
        ...

    def get_logs(
        self,
        pre_transform_messages: list[ChatMessage],
        post_transform_messages: list[ChatMessage],
    ) -> tuple[str, bool]:
        """Return a sentence about what the transform changed, and True if it changed anything."""
        ...


def should_transform(message: ChatMessage, filter_dict: FilterDict | None, exclude: bool) -> bool:
    """Return True if a transform with this filter changes `message`.

    Without filter it does. Else it does if `exclude` is False and all keys of the filter match, or
    if `exclude` is True and none does.
    """
    if not filter_dict:
        return True
    matches = [_matches(message.get(key), values) for key, values in filter_dict.items()]
    return not any(matches) if exclude else all(matches)


def change_texts(content: Any, change: Callable[[str], str]) -> Any:
    """Return `content`, text or a list of parts, with its texts changed."""
    if isinstance(content, str):
        return change(content)
    if not isinstance(content, list):
        return content
    return [_changed_part(part, change) for part in cast(list[Any], content)]


def without_leading_results(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return `messages` without tool results at the start, whose calls are not there."""
    first = next((i for i, each in enumerate(messages) if each.get("role") != "tool"), None)
    return [] if first is None else list(messages[first:])


def _matches(value: Any, values: Any) -> bool:
    if isinstance(values, list | set | tuple | frozenset):
        return value in values
    return value == values


def _changed_part(part: Any, change: Callable[[str], str]) -> Any:
    if isinstance(part, str):
        return change(part)
    if not isinstance(part, dict):
        return part
    values = cast(dict[str, Any], part)
    text = values.get("text")
    return {**values, "text": change(text)} if isinstance(text, str) else values
