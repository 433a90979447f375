"""Ask the model for one answer, and print it while it arrives."""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing

from ....agents.model_calls import ask_model, is_cut_off
from ....cancellation import CancellationToken
from ....errors import ModelOutputError
from ....models.client import ChatCompletionClient
from ....models.contexts import TokenLimitedChatCompletionContext
from ....models.messages import CreateResult, LLMMessage, RequestUsage, SystemMessage
from ..output import ChatOutput
from ..transcripts.entries import AnswerEntry
from ..transcripts.transcript import Transcript

_THOUGHTS = re.compile(r"<think>.*?(?:</think>\s*|\Z)", re.DOTALL)
_NAME = "assistant"


class ModelTurn:
    """Ask `client`. `usage` is what all answers used."""

    def __init__(
        self,
        client: ChatCompletionClient,
        system_message: str,
        transcript: Transcript,
        output: ChatOutput,
    ) -> None:
        self._client, self._output, self._transcript = client, output, transcript
        self._system_message = SystemMessage(content=system_message)
        self.usage = RequestUsage(0, 0)

    async def ask(self, token: CancellationToken) -> AnswerEntry:
        """Return the answer, which is in the transcript then, also if it is not complete.

        Raise `ModelError` if the model cannot be asked.
        """
        pieces: list[str] = []
        result: CreateResult | None = None
        try:
            result = await self._stream(pieces, token)
        except asyncio.CancelledError:
            if not token.is_cancelled():
                raise
        finally:
            await self._output.end_answer()
            if result is None and pieces:
                # Interrupted, or the connection broke: what the user has seen is kept.
                text = visible_answer("".join(pieces))
                self._transcript.add(AnswerEntry(text, is_complete=False))
        if result is None:
            return AnswerEntry("", is_complete=False)
        return self._finish(result)

    async def _stream(self, pieces: list[str], token: CancellationToken) -> CreateResult:
        answer = ask_model(
            self._client,
            await self._messages(),
            stream=True,
            source=_NAME,
            message_id="",
            token=token,
        )
        async with aclosing(answer):
            async for item in answer:
                if isinstance(item, CreateResult):
                    return item
                pieces.append(item.content)
                await self._output.write_answer(item.content)
        raise AssertionError("ask_model ends with a CreateResult")

    async def _messages(self) -> list[LLMMessage]:
        """Return the system message, and as much of the conversation as fits."""
        has_vision = self._client.model_info["vision"]
        messages = self._transcript.model_messages(has_vision=has_vision)
        try:
            self._client.remaining_tokens([])
        except ValueError:  # how many fit is not known
            return [self._system_message, *messages]
        context = TokenLimitedChatCompletionContext(self._client, initial_messages=messages)
        return [self._system_message, *await context.get_messages()]

    def _finish(self, result: CreateResult) -> AnswerEntry:
        self.usage += result.usage
        if not isinstance(result.content, str):
            raise ModelOutputError("The model answered with tool calls instead of text. Ask again.")
        entry = AnswerEntry(result.content, is_cut_off=is_cut_off(result))
        self._transcript.add(entry)
        if result.finish_reason == "length":
            self._output.note("the answer was cut off at the longest that the model may write")
        elif result.finish_reason == "content_filter":
            self._output.note("the service filtered the answer")
        return entry


def visible_answer(text: str) -> str:
    """Return `text` without the thoughts of the model."""
    return _THOUGHTS.sub("", text)
