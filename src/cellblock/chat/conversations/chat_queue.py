"""Sequential chats: a queue of chats, each with the summaries of those before it."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..io import IOStream
from ..printing import colored
from .carryover import carryover_texts, join_carryover
from .chat_result import ChatResult
from .summaries import check_summary_method

Entry = dict[str, Any]
"""One chat: `sender`, `recipient`, and arguments of `initiate_chat`."""
EXCLUDED = "finished_chat_indexes_to_exclude_from_carryover"
STARS = "\n" + "*" * 80


def initiate_chats(chat_queue: list[Entry]) -> list[ChatResult]:
    """Open chats one after the other, and return their results.

    Each entry has `sender`, `recipient` and other arguments of `initiate_chat`. Summaries of chats
    are carried over to the chats behind them, but for the numbers in
    `finished_chat_indexes_to_exclude_from_carryover`.
    """
    finished: list[ChatResult] = []
    run_chats(chat_queue, finished)
    return finished


async def a_initiate_chats(chat_queue: list[Entry]) -> dict[Any, ChatResult]:
    """Open chats side by side, and return the results by `chat_id`.

    Each entry has a `chat_id`. A chat waits for the chats in its `prerequisites`, whose summaries
    are carried over, but for those in `finished_chat_indexes_to_exclude_from_carryover`.
    """
    finished: dict[Any, ChatResult] = {}
    await a_run_chats(chat_queue, finished)
    return finished


def run_chats(chat_queue: Sequence[Mapping[str, Any]], finished: list[ChatResult]) -> None:
    """Open the chats one after the other, and append the results to `finished`."""
    check_queue(chat_queue)
    for entry in chat_queue:
        excluded = entry.get(EXCLUDED, [])
        summaries = [each.summary for i, each in enumerate(finished) if i not in excluded]
        chat = _with_carryover(entry, summaries)
        print_start(chat)
        finished.append(chat["sender"].initiate_chat(**chat))


async def a_run_chats(
    chat_queue: Sequence[Mapping[str, Any]], finished: dict[Any, ChatResult]
) -> None:
    """Open each chat when its prerequisites are over, and add the results to `finished`.

    If a chat fails, the chats that still run are cancelled, and its error is raised.
    """
    check_queue(chat_queue)
    waiting = _by_id(chat_queue)
    running: dict[asyncio.Task[ChatResult], Any] = {}
    try:
        while waiting or running:
            for chat_id in [each for each in waiting if _is_ready(waiting[each], finished)]:
                running[_start(waiting.pop(chat_id), finished)] = chat_id
            over, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in [each for each in running if each in over]:
                chat_id = running.pop(task)
                finished[chat_id] = task.result()
                finished[chat_id].chat_id = chat_id
    finally:
        await _cancel(running)


def _by_id(chat_queue: Sequence[Mapping[str, Any]]) -> dict[Any, Entry]:
    """Return the entries by id, or raise ValueError if some could never start."""
    chats: dict[Any, Entry] = {}
    for entry in chat_queue:
        if entry.get("chat_id") is None:
            raise ValueError("Each entry of asynchronous chats needs a chat_id. One has none.")
        if entry["chat_id"] in chats:
            raise ValueError(f"Two chats have the chat_id {entry['chat_id']!r}.")
        chats[entry["chat_id"]] = dict(entry)
    _check_order(chats)
    return chats


def _check_order(chats: Mapping[Any, Entry]) -> None:
    can_run: set[Any] = set()
    left = set(chats)
    while ready := [each for each in left if _is_ready(chats[each], can_run)]:
        can_run.update(ready)
        left.difference_update(ready)
    for chat_id in chats:
        if chat_id in left:
            raise ValueError(
                f"The chat {chat_id!r} waits for {chats[chat_id]['prerequisites']!r}, which never "
                "end. Name chats of the same queue as prerequisites, without a circle."
            )


def _is_ready(entry: Entry, over: Iterable[Any]) -> bool:
    return set(prerequisites(entry)) <= set(over)


def _start(entry: Entry, finished: Mapping[Any, ChatResult]) -> asyncio.Task[ChatResult]:
    excluded = entry.get(EXCLUDED, [])
    before = [each for each in prerequisites(entry) if each not in excluded]
    chat = _with_carryover(entry, [finished[each].summary for each in before])
    print_start(chat)
    return asyncio.create_task(chat["sender"].a_initiate_chat(**chat))


def _with_carryover(entry: Mapping[str, Any], summaries: Iterable[Any]) -> Entry:
    return {**entry, "carryover": join_carryover(entry.get("carryover"), summaries)}


def prerequisites(entry: Mapping[str, Any]) -> list[Any]:
    """Return the ids of the chats that a chat waits for."""
    return list(entry.get("prerequisites") or [])


async def _cancel(running: Iterable[asyncio.Task[ChatResult]]) -> None:
    tasks = list(running)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def check_queue(chat_queue: Sequence[Mapping[str, Any]]) -> None:
    """Raise AssertionError if an entry cannot run, and warn of what may surprise."""
    recipients = [entry.get("recipient") for entry in chat_queue]
    for entry in chat_queue:
        _check_entry(entry)
    if len({id(each) for each in recipients}) < len(recipients):
        warnings.warn(
            "Repetitive recipients detected: The chat history will be cleared by default if a "
            "recipient appears more than once. To retain the chat history, please set "
            "'clear_history=False' in the configuration of the repeating agent.",
            UserWarning,
            stacklevel=4,
        )


def _check_entry(entry: Mapping[str, Any]) -> None:
    for name in ("sender", "recipient"):
        if entry.get(name) is None:
            raise AssertionError(f"{name} must be provided.")
    check_summary_method(
        entry.get("summary_method", "last_msg"), entry["sender"], entry["recipient"]
    )
    if entry.get("message") is None:
        warnings.warn(
            "message is not provided in a chat_queue entry. "
            "input() will be called to get the initial message.",
            UserWarning,
            stacklevel=5,
        )


def print_start(chat: Mapping[str, Any]) -> None:
    """Print that a chat starts, with its message and carryover if `verbose` is true.

    Print nothing if `silent` is true.
    """
    if chat.get("silent"):
        return
    output = IOStream.get_default()
    output.print(colored(STARS, "blue"), flush=True, sep="")
    output.print(colored("Starting a new chat....", "blue"), flush=True)
    if chat.get("verbose"):
        output.print(colored("Message:\n" + _shown(chat.get("message")), "blue"), flush=True)
        carryover = "\n".join(carryover_texts(chat["carryover"]))
        output.print(colored("Carryover:\n" + carryover, "blue"), flush=True)
    output.print(colored(STARS, "blue"), flush=True, sep="")


def _shown(message: Any) -> str:
    if callable(message):
        return f"Callable: {getattr(message, '__name__', message)}"
    return f"Dict: {message}" if isinstance(message, dict) else str(message)
