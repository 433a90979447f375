"""Carryover: context that the first message of a chat takes from earlier chats."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from ..agent import ChatMessage
from ..errors import InvalidCarryOverType


def add_carryover(message: ChatMessage | str, carryover: Any) -> ChatMessage | str:
    """Return `message` with `carryover` behind it, or before it if it is a list of parts.

    `carryover` is text, a list, or nothing (None, "" or []). Raise `InvalidCarryOverType` if it
    is something else. A message without text is returned as it is.
    """
    context = carryover_context(carryover)
    if not context:
        return message
    if isinstance(message, str):
        return message + context
    match message.get("content"):
        case str(text):
            return {**message, "content": text + context}
        case list():
            part = {"type": "text", "text": context}
            return {**message, "content": [part, *message["content"]]}
        case _:
            return message


def carryover_context(carryover: Any) -> str:
    """Return the text that is added to a message, "" if there is no carryover."""
    if not carryover:
        return ""
    if not isinstance(carryover, str | list):
        raise InvalidCarryOverType()
    texts = [carryover] if isinstance(carryover, str) else carryover_texts(cast(Any, carryover))
    return "\nContext: \n" + "\n".join(texts)


def carryover_texts(items: Iterable[Any]) -> list[str]:
    """Return the text of each item: the content of a message, or `str` of it."""
    return [_text(item) for item in items]


def _text(item: Any) -> str:
    if not isinstance(item, dict):
        return str(item)
    message = cast(ChatMessage, item)
    return str(message.get("content", message))


def join_carryover(own: Any, summaries: Iterable[Any]) -> list[Any]:
    """Return a chat's own carryover with the summaries of the chats before it.

    Raise `InvalidCarryOverType` if `own` is neither text nor a list.
    """
    if not own:
        return [*summaries]
    if not isinstance(own, str | list):
        raise InvalidCarryOverType()
    return [*([own] if isinstance(own, str) else cast("list[Any]", own)), *summaries]
