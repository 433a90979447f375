"""Ask the model for one answer to the conversation."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from ....agents.model_calls import is_cut_off
from ....cancellation import CancellationToken
from ....errors import ModelError, ModelOutputError
from ....models.client import ChatCompletionClient
from ....models.messages import (
    AssistantMessage,
    CreateResult,
    LLMMessage,
    RequestUsage,
    SystemMessage,
)
from ....models.service_errors import is_too_long
from ..output import ChatOutput
from ..transcripts.entries import AnswerEntry, UserEntry
from ..transcripts.transcript import Transcript
from .context_window import ContextWindow
from .errors import in_words_of_the_command
from .fitting import Fitting, fit
from .requests import stream_answer

_THOUGHTS = re.compile(r"<think>.*?(?:</think>\s*|\Z)", re.DOTALL)
_MESSAGE_TOO_LONG = (
    "Your message is too long for the model: it has about {tokens:,} tokens. It was not taken. "
    "Send a shorter one, or put the data into a file of the work folder."
)
_TURN_TOO_LONG = (
    "Your message and the newest output are too long for the model, although the output was "
    "shortened. :undo takes your message back."
)


class ModelTurn:
    """Ask `client`, which may be replaced. `usage` is what all answers used."""

    def __init__(
        self,
        client: ChatCompletionClient,
        system_message: str,
        transcript: Transcript,
        output: ChatOutput,
    ) -> None:
        self._system_message = SystemMessage(content=system_message)
        self._output, self._transcript = output, transcript
        self._noted: UserEntry | None = None  # a line about the context was printed for it
        self.client = client
        self.usage = RequestUsage(0, 0)

    @property
    def client(self) -> ChatCompletionClient:
        """The client that is asked."""
        return self._client

    @client.setter
    def client(self, client: ChatCompletionClient) -> None:
        self._client = client
        self.window = ContextWindow(client, self._system_message)

    async def ask(self, token: CancellationToken) -> AnswerEntry:
        """Return the answer, which is in the transcript then, also if it is not complete.

        Raise `ModelError` if the model cannot be asked. A message that is too long for it is taken
        out of the transcript.
        """
        pieces: list[str] = []
        result: CreateResult | None = None
        try:
            result = await self._ask_what_fits(pieces, token)
        finally:
            if result is None and pieces:
                # Interrupted, or the connection broke: what the user has seen is kept.
                text = visible_answer("".join(pieces))
                self._transcript.add(AnswerEntry(text, is_complete=False))
        if result is None:
            return AnswerEntry("", is_complete=False)
        entry = AnswerEntry(text_of(result), is_cut_off=is_cut_off(result))
        self._transcript.add(entry)
        return entry

    async def send(
        self, messages: Sequence[LLMMessage], pieces: list[str], token: CancellationToken
    ) -> CreateResult | None:
        """Return the answer to `messages`, printed as it arrives; None if `token` is cancelled.

        Its text is added to `pieces`, and its tokens to `usage`. Raise `ModelError`.
        """
        asked = [self._system_message, *messages]
        try:
            result = await stream_answer(self.client, asked, pieces, token, self._output)
        except asyncio.CancelledError:
            if not token.is_cancelled():
                raise
            return None
        except ModelError as error:
            if is_too_long(error):
                self.window.add_refusal(messages, error)
            if not error.advice:
                raise
            raise in_words_of_the_command(error) from error
        finally:
            await self._output.end_answer()
        self.usage += result.usage
        if result.finish_reason == "length":
            self._output.note("the answer was cut off at the longest that the model may write")
        elif result.finish_reason == "content_filter":
            self._output.note("the service filtered the answer")
        return result

    async def _ask_what_fits(
        self, pieces: list[str], token: CancellationToken
    ) -> CreateResult | None:
        """Return the answer to as much of the conversation as the service accepts."""
        refused: list[LLMMessage] = []
        while True:
            fitting = self._fit()
            if fitting.messages == refused or self.window.is_smaller_than(fitting.messages):
                raise ModelError(self._describe_too_long(fitting))
            try:
                result = await self.send(fitting.messages, pieces, token)
            except ModelError as error:
                if pieces or not is_too_long(error):
                    raise
                refused = fitting.messages
                continue
            if result is not None:
                self._note_context(fitting, result)
            return result

    def _fit(self) -> Fitting:
        has_vision = self.client.model_info["vision"]
        entries, count = self._transcript.entries, self.client.count_tokens
        return fit(entries, self.window.limit, count, has_vision=has_vision)

    def _describe_too_long(self, fitting: Fitting) -> str:
        """Return what to do. Take the user's message back if it is the newest entry."""
        if not isinstance(self._transcript.entries[-1], UserEntry):
            return _TURN_TOO_LONG
        self._transcript.replace_all(self._transcript.entries[:-1])
        return _MESSAGE_TOO_LONG.format(tokens=self.client.count_tokens(fitting.messages[-1:]))

    def _note_context(self, fitting: Fitting, result: CreateResult) -> None:
        """Print what the model was not shown, or that its context is nearly full.

        The context is mentioned once for each message of the user.
        """
        if fitting.is_shortened:
            self._output.note(
                "the output is longer than the model can read: it is shown the beginning and the "
                "end"
            )
        questions = [entry for entry in self._transcript.entries if isinstance(entry, UserEntry)]
        if not questions or self._noted is questions[-1]:
            return
        if fitting.left_out:
            text = f"it is not shown {fitting.left_out} of the messages in the middle"
            text = f"the conversation is longer than the model can read: {text}"
        elif percent := self.window.nearly_full(self._tokens_of(fitting.messages, result)):
            text = f"the model's context is nearly full ({percent} %)"
        else:
            return
        self._output.note(f"{text}; :compact lets it write a summary")
        self._noted = questions[-1]

    def _tokens_of(self, messages: Sequence[LLMMessage], result: CreateResult) -> int:
        """Return how many tokens a request and its answer have: an estimate if need be."""
        usage = result.usage
        if usage.prompt_tokens:
            return usage.prompt_tokens + usage.completion_tokens
        answer = AssistantMessage(content=text_of(result), source="assistant")
        return self.client.count_tokens([self._system_message, *messages, answer])


def text_of(result: CreateResult) -> str:
    """Return the text of `result`. Raise `ModelOutputError` if it is none."""
    if not isinstance(result.content, str):
        raise ModelOutputError("The model answered with tool calls instead of text. Ask again.")
    return result.content


def visible_answer(text: str) -> str:
    """Return `text` without the thoughts of the model."""
    return _THOUGHTS.sub("", text)
