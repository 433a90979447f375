"""Ask the model for one answer, and print it while it arrives."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import aclosing

from ....agents.model_calls import ask_model, is_cut_off
from ....cancellation import CancellationToken
from ....errors import ModelError, ModelOutputError
from ....models.client import ChatCompletionClient
from ....models.contexts import TokenLimitedChatCompletionContext
from ....models.messages import CreateResult, LLMMessage, RequestUsage, SystemMessage
from ....models.service_errors import is_too_long
from ..output import ChatOutput
from ..transcripts.entries import AnswerEntry
from ..transcripts.transcript import Transcript

_THOUGHTS = re.compile(r"<think>.*?(?:</think>\s*|\Z)", re.DOTALL)
_NAME = "assistant"
_WAITING_NOTE_DELAY = 3.0  # seconds; most models begin sooner
_FEWEST_MESSAGES = 2  # the system message, and the one to answer
_SHARE_THAT_STAYS = 0.7  # of a conversation that the service refused as too long


class ModelTurn:
    """Ask `client`, which may be replaced. `usage` is what all answers used."""

    def __init__(
        self,
        client: ChatCompletionClient,
        system_message: str,
        transcript: Transcript,
        output: ChatOutput,
    ) -> None:
        self._client = client
        self._token_limit: int | None = None  # of the conversation
        self._left_out = 0  # messages of the last request
        self._output, self._transcript = output, transcript
        self._system_message = SystemMessage(content=system_message)
        self.usage = RequestUsage(0, 0)

    @property
    def client(self) -> ChatCompletionClient:
        """The client that is asked."""
        return self._client

    @client.setter
    def client(self, client: ChatCompletionClient) -> None:
        self._client, self._token_limit = client, None

    async def ask(self, token: CancellationToken) -> AnswerEntry:
        """Return the answer, which is in the transcript then, also if it is not complete.

        Raise `ModelError` if the model cannot be asked.
        """
        pieces: list[str] = []
        result: CreateResult | None = None
        try:
            result = await self._stream_what_fits(pieces, token)
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

    async def _stream_what_fits(self, pieces: list[str], token: CancellationToken) -> CreateResult:
        """Return the answer to as many messages as the service accepts."""
        while True:
            messages = await self._messages()
            try:
                return await self._stream(messages, pieces, token)
            except ModelError as error:
                if pieces or len(messages) <= _FEWEST_MESSAGES or not is_too_long(error):
                    raise
            self._token_limit = int(self.client.count_tokens(messages[1:]) * _SHARE_THAT_STAYS)

    async def _stream(
        self, messages: Sequence[LLMMessage], pieces: list[str], token: CancellationToken
    ) -> CreateResult:
        answer = ask_model(
            self.client,
            messages,
            stream=True,
            source=_NAME,
            message_id="",
            token=token,
        )
        waiting = self._output.waiting("waiting for the model; Ctrl-C stops", _WAITING_NOTE_DELAY)
        async with aclosing(answer):
            with waiting as timer:
                async for item in answer:
                    timer.cancel()
                    if isinstance(item, CreateResult):
                        return item
                    pieces.append(item.content)
                    await self._output.write_answer(item.content)
        raise AssertionError("ask_model ends with a CreateResult")

    async def _messages(self) -> list[LLMMessage]:
        """Return the system message, and as much of the conversation as fits."""
        has_vision = self.client.model_info["vision"]
        messages = self._transcript.model_messages(has_vision=has_vision)
        if self._token_limit is None:
            try:
                self._token_limit = self.client.remaining_tokens([self._system_message])
            except ValueError:  # how many fit is not known until the service refuses them
                return [self._system_message, *messages]
        context = TokenLimitedChatCompletionContext(
            self.client, token_limit=max(1, self._token_limit), initial_messages=messages
        )
        # The last message is what the answer is to.
        fitting = await context.get_messages() or messages[-1:]
        self._note_left_out(len(messages) - len(fitting))
        return [self._system_message, *fitting]

    def _note_left_out(self, count: int) -> None:
        if count > self._left_out:
            self._output.note(
                f"the conversation is longer than the model can read: it is not shown {count} of "
                "the messages in the middle; :compact lets it write a summary"
            )
        self._left_out = count

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
