"""Nested chats: an agent holds chats with other agents before it replies."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial, update_wrapper
from typing import Any

from ..agent import ChatMessage, Reply
from .chat_queue import Entry, a_initiate_chats, initiate_chats, prerequisites

SUMMARY_REPLY = "summary_from_nested_chats"
REPLY_OPTIONS = ("config", "reset_config", "ignore_async_in_sync_chat")


def nested_reply_function(
    chat_queue: list[Entry], function: Any, *, use_async: bool
) -> Callable[..., Any]:
    """Return the reply function that holds the chats of `chat_queue`.

    `function` gets the queue; see `ConversableAgent.register_nested_chats`.
    """
    if use_async and any(entry.get("chat_id") is None for entry in chat_queue):
        raise ValueError("chat_id is required for async nested chats")
    if not callable(function):
        raise ValueError("reply_func_from_nested_chats must be a callable")
    if use_async and not inspect.iscoroutinefunction(function):
        raise ValueError("reply_func_from_nested_chats must be a callable and a coroutine")
    return _with_queue(function, chat_queue)


def _summary_from_nested_chats(
    chat_queue: Sequence[Mapping[str, Any]],
    recipient: Any,
    messages: list[ChatMessage] | None = None,
    sender: Any = None,
    config: Any = None,
) -> Reply:
    chats = chats_to_run(chat_queue, recipient, messages, sender, config)
    if not chats:
        return True, None
    return True, initiate_chats(chats)[-1].summary


async def _a_summary_from_nested_chats(
    chat_queue: Sequence[Mapping[str, Any]],
    recipient: Any,
    messages: list[ChatMessage] | None = None,
    sender: Any = None,
    config: Any = None,
) -> Reply:
    chats = chats_to_run(chat_queue, recipient, messages, sender, config)
    for chat in chats:
        if inspect.isawaitable(chat["message"]):
            chat["message"] = await chat["message"]
    chats = _without_left_out([chat for chat in chats if chat["message"]], chat_queue)
    if not chats:
        return True, None
    results = await a_initiate_chats(chats)
    return True, results[chats[-1]["chat_id"]].summary


# Lists of reply functions show the names that AutoGen has.
summary_from_nested_chats = _summary_from_nested_chats
a_summary_from_nested_chats = _a_summary_from_nested_chats


def _with_queue(function: Callable[..., Any], chat_queue: list[Entry]) -> Callable[..., Any]:
    """Return `function` with its first argument, as a function of the same name and kind."""
    bound = partial(function, chat_queue)
    if not inspect.iscoroutinefunction(function):
        return update_wrapper(bound, function)

    async def call(*arguments: Any, **options: Any) -> Any:
        return await bound(*arguments, **options)

    return update_wrapper(call, function)


def chats_to_run(
    chat_queue: Sequence[Mapping[str, Any]],
    recipient: Any,
    messages: list[ChatMessage] | None,
    sender: Any,
    config: Any,
) -> list[Entry]:
    """Return the entries that have a message, each with its sender and its message."""
    chats: list[Entry] = []
    for number, entry in enumerate(chat_queue):
        message = entry.get("message")
        if message is None and number == 0:
            message = _message_to_answer(messages)
        elif callable(message):
            message = message(recipient, messages, sender, config)
        if message:
            sender_of_chat = entry.get("sender") or recipient
            chats.append({**entry, "sender": sender_of_chat, "message": message})
    return chats


def _without_left_out(chats: list[Entry], chat_queue: Sequence[Mapping[str, Any]]) -> list[Entry]:
    """Return `chats` so that none waits for a chat that is left out."""
    left_out = {entry["chat_id"] for entry in chat_queue} - {chat["chat_id"] for chat in chats}
    return [
        {**chat, "prerequisites": [each for each in prerequisites(chat) if each not in left_out]}
        for chat in chats
    ]


def _message_to_answer(messages: list[ChatMessage] | None) -> Any:
    content: Any = messages[-1].get("content") if messages else None
    return content if isinstance(content, str | None) else {"content": content}
