"""Choose what of a conversation the model is shown, if not all of it fits. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....models.messages import AssistantMessage, LLMMessage, UserMessage
from ....observation import shorten
from ..transcripts.entries import Entry, RunEntry, UserEntry, model_message

CountTokens = Callable[[Sequence[LLMMessage]], int]
_FEWEST_CHARACTERS = 200  # of a message that is shortened
_TOO_LONG = "\nThe output was too long for you: print less."


@dataclass(frozen=True)
class Fitting:
    """What the model is shown.

    left_out       how many messages it is not shown
    is_shortened   True if the newest result is not shown whole
    """

    messages: list[LLMMessage]
    left_out: int = 0
    is_shortened: bool = False


def fit(
    entries: Sequence[Entry], limit: int | None, count: CountTokens, *, has_vision: bool
) -> Fitting:
    """Return what of `entries` is at most `limit` tokens; None means all of it.

    The user's newest message and the newest result stay, even if they are more. A result is
    shortened to half of the limit, then other messages are left out, from the middle, then it gets
    the room that is left.
    """
    shown = {n: model_message(entry, has_vision=has_vision) for n, entry in enumerate(entries)}
    if limit is None or count(list(shown.values())) <= limit:
        return Fitting(list(shown.values()))
    newest, whole = len(entries) - 1, shown[len(entries) - 1]
    is_result = isinstance(entries[-1], RunEntry)
    if is_result:
        shown[newest] = shorten_message(whole, limit // 2, count, _TOO_LONG)
    questions = [n for n, entry in enumerate(entries) if isinstance(entry, UserEntry)]
    others = [n for n in shown if n not in (newest, *questions[-1:])]
    total = count(list(shown.values()))
    while total > limit and others:
        total -= count([shown.pop(others.pop((len(others) - 1) // 2))])
    if is_result:
        room = limit - count([message for n, message in shown.items() if n != newest])
        shown[newest] = shorten_message(whole, room, count, _TOO_LONG)
    messages = list(shown.values())
    return Fitting(messages, len(entries) - len(messages), shown[newest] is not whole)


def shorten_message(
    message: LLMMessage, limit: int, count: CountTokens, note: str = ""
) -> LLMMessage:
    """Return `message` with as much of its head and tail as is at most `limit` tokens.

    A few hundred characters stay in any case, and no pictures. `note` is added at the end.
    """
    if not isinstance(message, UserMessage | AssistantMessage) or count([message]) <= limit:
        return message
    parts = [message.content] if isinstance(message.content, str) else message.content
    text = "\n".join(part if isinstance(part, str) else "[Left out: a picture]" for part in parts)
    size = len(text)
    while True:
        shorter = message.model_copy(update={"content": shorten(text, size) + note})
        tokens = count([shorter])
        if tokens <= limit or size <= _FEWEST_CHARACTERS:
            return shorter
        size = max(_FEWEST_CHARACTERS, int(size * min(0.95, limit / tokens)))
