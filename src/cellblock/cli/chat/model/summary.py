"""Let the model summarize a conversation: in several steps, if it is too long for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....cancellation import CancellationToken
from ....errors import ModelError
from ....models.messages import LLMMessage
from ....models.service_errors import is_too_long
from ..transcripts.entries import AnswerEntry, Entry, UserEntry, model_message
from .fitting import shorten_message
from .turn import ModelTurn, text_of

SUMMARIZE = (
    "Summarize our conversation, so that you can go on with the summary alone: the task, what is "
    "done, what was found, the files and variables that exist, and what is left to do. Write no "
    "code blocks."
)
_SHARE_OF_MESSAGES = 0.75  # of what fits; the rest is for the summary


async def summarize(
    model: ModelTurn,
    entries: Sequence[Entry],
    note: Callable[[str], None],
    token: CancellationToken,
) -> str | None:
    """Return the summary of all of `entries`; None if `token` is cancelled.

    If they are too long for one request, the summary of the first ones stands for them in the next.
    Raise `ModelError`.
    """
    summary: list[LLMMessage] = []
    rest = [model_message(entry, has_vision=False) for entry in entries]
    request = model_message(UserEntry(SUMMARIZE), has_vision=False)
    text, refused = "", list[LLMMessage]()
    while rest:
        part = _first_part(model, [*summary, request], rest)
        messages = [*summary, *part, request]
        if messages == refused:
            raise ModelError("The model cannot read enough in one request to write a summary.")
        if len(part) < len(rest):
            first, last = len(entries) - len(rest) + 1, len(entries) - len(rest) + len(part)
            note(f"summarizing messages {first} to {last} of {len(entries)}")
        try:
            result = await model.send(messages, [], token)
        except ModelError as error:
            if not is_too_long(error):
                raise
            refused = messages  # less fits now
            continue
        if result is None:
            return None
        text = text_of(result)
        summary = [request, model_message(AnswerEntry(text), has_vision=False)]
        rest = rest[len(part) :]
    return text


def _first_part(
    model: ModelTurn, others: Sequence[LLMMessage], rest: Sequence[LLMMessage]
) -> list[LLMMessage]:
    """Return the first messages of `rest` that fit with `others`: at least one, shortened."""
    if model.window.limit is None:
        return list(rest)
    count = model.client.count_tokens
    room = int(model.window.limit * _SHARE_OF_MESSAGES) - count(others)
    part: list[LLMMessage] = [shorten_message(rest[0], room, count)]
    for message in rest[1:]:
        if count([*part, message]) > room:
            break
        part.append(message)
    return part
