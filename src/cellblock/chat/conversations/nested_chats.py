"""Nested chats: an agent holds chats with other agents before it replies."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial, update_wrapper
from typing import Any

from ..agent import ChatMessage
from ..agent_state import AgentState, Reply
from .chat_queue import a_initiate_chats, initiate_chats, prerequisites

SUMMARY_REPLY = "summary_from_nested_chats"


class NestedChats(AgentState):
    """The part of an agent that holds nested chats."""

    def register_nested_chats(
        self,
        chat_queue: list[dict[str, Any]],
        trigger: Any,
        reply_func_from_nested_chats: str | Callable[..., Any] = SUMMARY_REPLY,
        position: int = 2,
        use_async: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """Hold the chats of `chat_queue` whenever a message from `trigger` is to be answered.

        The reply is the summary of the last chat. Each entry has the arguments of `initiate_chat`.
        The agent is the sender unless the entry has another. A function as `message` has the
        arguments (recipient, messages, sender, config); a chat is left out if its message is empty.
        The first chat opens with the message that is to be answered if it has none of its own.

        A function as `reply_func_from_nested_chats` has the arguments (chat_queue, recipient,
        messages, sender, config) and returns (final, reply). With `use_async` the chats run only in
        asynchronous chats, side by side, and each entry needs a `chat_id`. `kwargs` may have
        `config`, `reset_config` and `ignore_async_in_sync_chat` of `register_reply`.
        """
        if use_async and any(entry.get("chat_id") is None for entry in chat_queue):
            raise ValueError("chat_id is required for async nested chats")
        function = self._nested_reply_function(reply_func_from_nested_chats, bool(use_async))
        options = {key: kwargs[key] for key in _REPLY_OPTIONS if key in kwargs}
        self.register_reply(trigger, _with_queue(function, chat_queue), position, **options)

    def _nested_reply_function(
        self, function: str | Callable[..., Any], use_async: bool
    ) -> Callable[..., Any]:
        if function == SUMMARY_REPLY:
            summary, a_summary = self._summary_from_nested_chats, self._a_summary_from_nested_chats
            return a_summary if use_async else summary
        if not callable(function):
            raise ValueError("reply_func_from_nested_chats must be a callable")
        if use_async and not inspect.iscoroutinefunction(function):
            raise ValueError("reply_func_from_nested_chats must be a callable and a coroutine")
        return function

    @staticmethod
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

    @staticmethod
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


_REPLY_OPTIONS = ("config", "reset_config", "ignore_async_in_sync_chat")


def _with_queue(
    function: Callable[..., Any], chat_queue: list[dict[str, Any]]
) -> Callable[..., Any]:
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
) -> list[dict[str, Any]]:
    """Return the entries that have a message, each with its sender and its message."""
    chats: list[dict[str, Any]] = []
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


def _without_left_out(
    chats: list[dict[str, Any]], chat_queue: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return `chats` so that none waits for a chat that is left out."""
    left_out = {entry["chat_id"] for entry in chat_queue} - {chat["chat_id"] for chat in chats}
    return [
        {**chat, "prerequisites": [each for each in prerequisites(chat) if each not in left_out]}
        for chat in chats
    ]


def _message_to_answer(messages: list[ChatMessage] | None) -> Any:
    content: Any = messages[-1].get("content") if messages else None
    return content if isinstance(content, str | None) else {"content": content}
