"""Choose what of a conversation the model is shown, if not all of it fits. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....models.messages import AssistantMessage, LLMMessage, UserMessage
from ....observation import shorten
from ..transcripts.entries import RESULT, USER

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


def is_question(message: LLMMessage) -> bool:
    """Return True if the user wrote `message`."""
    return isinstance(message, UserMessage) and message.source == USER


def fit(messages: Sequence[LLMMessage], limit: int | None, count: CountTokens) -> Fitting:
    """Return what of `messages` is at most `limit` tokens; None means all of it.

    The user's newest message and the newest result stay, even if they are more. A result is
    shortened to half of the limit, then other messages are left out, from the middle, then it gets
    the room that is left.
    """
    shown = dict(enumerate(messages))
    if limit is None or count(messages) <= limit:
        return Fitting(list(messages))
    newest, whole = len(messages) - 1, messages[-1]
    is_result = isinstance(whole, UserMessage) and whole.source == RESULT
    if is_result:
        shown[newest] = shorten_message(whole, limit // 2, count, _TOO_LONG)
    questions = [n for n, message in enumerate(messages) if is_question(message)]
    others = [n for n in shown if n not in (newest, *questions[-1:])]
    total = count(list(shown.values()))
    while total > limit and others:
        total -= count([shown.pop(others.pop((len(others) - 1) // 2))])
    if is_result:
        room = limit - count([message for n, message in shown.items() if n != newest])
        shown[newest] = shorten_message(whole, room, count, _TOO_LONG)
    return Fitting(list(shown.values()), len(messages) - len(shown), shown[newest] is not whole)


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
