"""TextMessageContentName: write the speaker's name into a message, for models that need it."""

from __future__ import annotations

from typing import Literal

from ..agent import ChatMessage
from .message_transform import FilterDict, should_transform


class TextMessageContentName:
    """Put the speaker's name at the start or the end of each text.

    format_string    how the name is written; it contains `{name}`
    deduplicate      leave a text that already has the name there
    filter_dict      leave messages with these values, such as `{"role": ["user"]}`
    exclude_filter   False means: change only messages with these values

    Messages without name and with parts, such as images, are left as they are.
    """

    def __init__(
        self,
        position: Literal["start", "end"] = "start",
        format_string: str = "{name}:\n",
        deduplicate: bool = True,
        filter_dict: FilterDict | None = None,
        exclude_filter: bool = True,
    ) -> None:
        if position not in ("start", "end"):
            raise AssertionError(f"The position is {position!r}. Use 'start' or 'end'.")
        if "{name}" not in str(format_string):
            raise AssertionError(f"The format string is {format_string!r}. Put '{{name}}' in it.")
        self._position = position
        self._format_string = format_string
        self._deduplicate = deduplicate
        self._filter_dict = filter_dict
        self._exclude_filter = exclude_filter

    def apply_transform(self, messages: list[ChatMessage]) -> list[ChatMessage]:
        """Return the messages with names."""
        return [
            self._with_name(message)
            if should_transform(message, self._filter_dict, self._exclude_filter)
            else message
            for message in messages
        ]

    def get_logs(
        self,
        pre_transform_messages: list[ChatMessage],
        post_transform_messages: list[ChatMessage],
    ) -> tuple[str, bool]:
        """Return how many messages got a name, and True if any."""
        pairs = zip(pre_transform_messages, post_transform_messages, strict=False)
        changed = sum(before != after for before, after in pairs)
        if not changed:
            return "No messages changed to incorporate name.", False
        return f"{changed} message(s) changed to incorporate name.", True

    def _with_name(self, message: ChatMessage) -> ChatMessage:
        name, content = message.get("name"), message.get("content")
        if not name or not content or not isinstance(content, str):
            return message
        written = self._format_string.format(name=name)
        at_start = self._position == "start"
        has_name = content.startswith(written) if at_start else content.endswith(written)
        if has_name and self._deduplicate:
            return message
        return {**message, "content": written + content if at_start else content + written}
