"""Let the model summarize a conversation: in several steps, if it is too long for one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from ....agents.cancellable import until_cancelled
from ....agents.model_calls import text_of
from ....cancellation import CancellationToken
from ....errors import ModelError
from ....models.messages import CreateResult, LLMMessage
from ....models.service_errors import is_too_long
from ..output import ChatOutput
from ..transcripts.entries import AnswerEntry, Entry, UserEntry, model_message
from .chat_model import ChatModel
from .fitting import shorten_message

SUMMARIZE = (
    "Summarize our conversation, so that you can go on with the summary alone: the task, what is "
    "done, what was found, the files and variables that exist, and what is left to do. Write no "
    "code blocks."
)
_NO_TEXT = "The model answered with tool calls instead of text. Ask again."
_SHARE_OF_MESSAGES = 0.75  # of what fits; the rest is for the summary


async def summarize(
    model: ChatModel,
    entries: Sequence[Entry],
    output: ChatOutput,
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
            output.note(f"summarizing messages {first} to {last} of {len(entries)}")
        try:
            result = await _ask(model, messages, token, output)
        except ModelError as error:
            if not is_too_long(error):
                raise
            refused = messages  # less fits now
            continue
        if result is None:
            return None
        text = text_of(result, _NO_TEXT)
        summary = [request, model_message(AnswerEntry(text), has_vision=False)]
        rest = rest[len(part) :]
    return text


async def _ask(
    model: ChatModel, messages: Sequence[LLMMessage], token: CancellationToken, output: ChatOutput
) -> CreateResult | None:
    """Return the answer, printed as it arrives; None if `token` is cancelled."""
    try:
        async with aclosing(until_cancelled(model.ask(messages, token), token)) as answer:
            async for item in answer:
                if isinstance(item, CreateResult):
                    return item
                await output.write_answer(item)
    except asyncio.CancelledError:
        if not token.is_cancelled():
            raise
    return None


def _first_part(
    model: ChatModel, others: Sequence[LLMMessage], rest: Sequence[LLMMessage]
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
