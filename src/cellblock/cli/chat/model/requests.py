"""Send one request to the model, again if it is worth it, and print the answer as it arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from ....agents.cancellable import cancelled_by
from ....agents.model_calls import ask_model
from ....cancellation import CancellationToken
from ....errors import ModelError
from ....models.client import ChatCompletionClient
from ....models.messages import CreateResult, LLMMessage
from ....models.service_errors import RATE_LIMIT, retry_delay
from ..output import ChatOutput

_NAME = "assistant"
_WAITING_NOTE_DELAY = 3.0  # seconds; most models begin sooner


async def stream_answer(
    client: ChatCompletionClient,
    messages: Sequence[LLMMessage],
    pieces: list[str],
    token: CancellationToken,
    output: ChatOutput,
) -> CreateResult:
    """Return the answer to `messages`. Its text is printed and added to `pieces` meanwhile.

    If the service is busy, wait for it, and say so. Raise `ModelError`, and `CancelledError` if
    `token` is cancelled.
    """
    attempts = 0
    while True:
        attempts += 1
        try:
            return await _stream_once(client, messages, pieces, token, output)
        except ModelError as error:
            seconds = None if pieces else retry_delay(error, attempts)
            if seconds is None:
                raise
            output.note(f"{_reason(error)}: asking again in {seconds:g} s; Ctrl-C stops")
        with cancelled_by(token):
            await asyncio.sleep(seconds)


def _reason(error: ModelError) -> str:
    if error.status == RATE_LIMIT:
        return "the service has reached its rate limit"
    if error.status is None:
        return "the service cannot be reached"
    return f"the service answered with status {error.status}"


async def _stream_once(
    client: ChatCompletionClient,
    messages: Sequence[LLMMessage],
    pieces: list[str],
    token: CancellationToken,
    output: ChatOutput,
) -> CreateResult:
    answer = ask_model(client, messages, stream=True, source=_NAME, message_id="", token=token)
    waiting = output.waiting("waiting for the model; Ctrl-C stops", _WAITING_NOTE_DELAY)
    async with aclosing(answer):
        with waiting as timer:
            async for item in answer:
                timer.cancel()
                if isinstance(item, CreateResult):
                    return item
                pieces.append(item.content)
                await output.write_answer(item.content)
    raise AssertionError("ask_model ends with a CreateResult")
