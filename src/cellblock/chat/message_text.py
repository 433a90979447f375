"""The text of a message's content, which can be in parts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ..models.span_messages import text_json


def content_str(content: str | list[Any] | None) -> str:
    """Return the text of a message's content, with `<image>` for each picture; "" for None.

    Raise `TypeError`, `ValueError` or `AssertionError` if the content is malformed.
    """
    if content is None or isinstance(content, str):
        return content or ""
    # Messages come from untyped callers and from models.
    if not isinstance(content, list):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"content must be None, str, or list, but got {type(content)}")
    return "".join([_part_str(part) for part in content])


def _part_str(part: object) -> str:
    if not isinstance(part, Mapping):
        raise TypeError(
            "Wrong content format: every element should be dict if the content is a list."
        )
    values = cast("Mapping[str, Any]", part)
    if "type" not in values:
        raise AssertionError("Wrong content format. Missing 'type' key in content's dict.")
    match values["type"]:
        case "text":
            return values["text"]
        case "image_url":
            return "<image>"
        case other:
            raise ValueError(f"Wrong content format: unknown type {other} within the content")


def chat_json(role: str, messages: Sequence[Mapping[str, Any] | str | None]) -> str:
    """Return `messages` as spans record them."""
    return text_json(role, [_whole_text(each) for each in messages if each is not None])


def _whole_text(message: Mapping[str, Any] | str) -> str:
    content: object = message if isinstance(message, str) else message.get("content")
    return content if isinstance(content, str) and content else json.dumps(message, default=repr)
