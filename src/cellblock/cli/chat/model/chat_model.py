"""The model of the command: it is shown what fits, and asked again while its service is busy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from ....cancellation import CancellationToken, Token
from ....errors import ModelError
from ....models.client import ChatCompletionClient, with_parameters_of
from ....models.forwarding import ForwardingClient
from ....models.messages import (
    AssistantMessage,
    CreateResult,
    LLMMessage,
    RequestUsage,
    SystemMessage,
)
from ....models.service_errors import RATE_LIMIT, is_too_long, retry_delay
from ..output import ChatOutput
from .context_window import ContextWindow
from .errors import in_words_of_the_command
from .fitting import Fitting, fit, is_question

_WAITING_NOTE_DELAY = 3.0  # seconds; most models begin sooner
_MESSAGE_TOO_LONG = (
    "Your message is too long for the model: it has about {tokens:,} tokens. It was not taken. "
    "Send a shorter one, or put the data into a file of the work folder."
)
_WINDOW_TOO_SMALL = (
    "Your message has only about {tokens:,} tokens, and the instructions before it {more:,}: the "
    "model can read too few. Give its server a longer context, set --context-window if it is "
    "wrong, or choose another with :model NAME.{said}"
)
_TURN_TOO_LONG = (
    "Your message and the newest output are too long for the model, although the output was "
    "shortened. :undo takes your message back."
)


class MessageTooLong(ModelError):
    """The newest message of the user is too long for the model."""


class ChatModel(ForwardingClient):
    """Ask `client`. `usage` is what all answers used."""

    def __init__(
        self, client: ChatCompletionClient, system_message: str, output: ChatOutput
    ) -> None:
        self.system_message = SystemMessage(content=system_message)
        self._output = output
        self._noted = (0, "")  # the question for which a line about the context was printed
        super().__init__(client)
        self.window = ContextWindow(client, self.system_message)
        self.usage = RequestUsage(0, 0)

    def replace_client(self, client: ChatCompletionClient) -> None:
        """Ask `client` from now on."""
        self.client = client
        self.window = ContextWindow(client, self.system_message)

    @with_parameters_of(ChatCompletionClient.create)
    async def create(self, *arguments: Any, **options: Any) -> CreateResult:
        """Return the answer. See `create_stream`."""
        async for item in self.create_stream(*arguments, **options):
            if isinstance(item, CreateResult):
                return item
        raise AssertionError("a stream ends with a CreateResult")

    async def create_stream(
        self,
        messages: Sequence[LLMMessage],
        *,
        cancellation_token: Token | None = None,
        **_options: Any,
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Yield the answer to as much of `messages` as the service accepts.

        The first of them is the system message. Raise `MessageTooLong` if the newest one is not.
        """
        _, *conversation = messages
        token = cancellation_token or CancellationToken()
        refused: list[LLMMessage] = []
        refusal: ModelError | None = None
        while True:
            fitting = fit(conversation, self.window.limit, self.client.count_tokens)
            if fitting.messages == refused or self.window.is_smaller_than(fitting.messages):
                raise self._too_long(fitting, refusal)
            has_begun = False
            try:
                async with aclosing(self.ask(fitting.messages, token)) as answer:
                    async for item in answer:
                        has_begun = True
                        if isinstance(item, CreateResult):
                            self._note_context(conversation, fitting, item)
                        yield item
                return
            except ModelError as error:
                if has_begun or not is_too_long(error):
                    raise
                refused, refusal = fitting.messages, error

    async def ask(
        self, messages: Sequence[LLMMessage], token: Token
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Yield the answer to `messages` after the system message, and count its tokens.

        If the service is busy, wait for it, and say so. The output must have shown each piece when
        the next one is requested. Raise `ModelError`.
        """
        try:
            async with aclosing(self._ask_until_it_answers(messages, token)) as answer:
                async for item in answer:
                    if isinstance(item, CreateResult):
                        await self._output.end_answer()
                        self._add(item)
                    yield item
        except ModelError as error:
            if is_too_long(error):
                self.window.add_refusal(messages, error)
            if not error.advice:
                raise
            raise in_words_of_the_command(error) from error
        finally:
            await self._output.end_answer()

    async def _ask_until_it_answers(
        self, messages: Sequence[LLMMessage], token: Token
    ) -> AsyncGenerator[str | CreateResult, None]:
        attempts, has_begun = 0, False
        while True:
            attempts += 1
            answer = self.client.create_stream(
                [self.system_message, *messages], cancellation_token=token
            )
            waiting = self._output.waiting(
                "waiting for the model; Ctrl-C stops", _WAITING_NOTE_DELAY
            )
            try:
                async with aclosing(answer):
                    with waiting as timer:
                        async for item in answer:
                            timer.cancel()
                            has_begun = True
                            yield item
                return
            except ModelError as error:
                seconds = None if has_begun else retry_delay(error, attempts)
                if seconds is None:
                    raise
                note = f"{_reason(error)}: asking again in {seconds:g} s; Ctrl-C stops"
                self._output.note(note)
            await asyncio.sleep(seconds)

    def _add(self, result: CreateResult) -> None:
        self.usage += result.usage
        if result.finish_reason == "length":
            self._output.note("the answer was cut off at the longest that the model may write")
        elif result.finish_reason == "content_filter":
            self._output.note("the service filtered the answer")

    def _too_long(self, fitting: Fitting, refusal: ModelError | None) -> ModelError:
        if not is_question(fitting.messages[-1]):
            return ModelError(_TURN_TOO_LONG)
        tokens = self.client.count_tokens(fitting.messages[-1:])
        instructions = self.client.count_tokens([self.system_message])
        if tokens < instructions:
            said = f" It said: {refusal}" if refusal else ""
            return ModelError(_WINDOW_TOO_SMALL.format(tokens=tokens, more=instructions, said=said))
        return MessageTooLong(_MESSAGE_TOO_LONG.format(tokens=tokens))

    def _note_context(
        self, conversation: Sequence[LLMMessage], fitting: Fitting, result: CreateResult
    ) -> None:
        """Print what the model was not shown, or that its context is nearly full.

        The context is mentioned once for each message of the user.
        """
        if fitting.is_shortened:
            self._output.note(
                "the output is longer than the model can read: it is shown the beginning and the "
                "end"
            )
        questions = [str(message.content) for message in conversation if is_question(message)]
        newest = (len(questions), questions[-1] if questions else "")
        if newest in ((0, ""), self._noted):
            return
        if fitting.left_out:
            text = f"it is not shown {fitting.left_out} of the messages in the middle"
            text = f"the conversation is longer than the model can read: {text}"
        elif percent := self.window.nearly_full(self._tokens_of(fitting.messages, result)):
            text = f"the model's context is nearly full ({percent} %)"
        else:
            return
        self._output.note(f"{text}; :compact lets it write a summary")
        self._noted = newest

    def _tokens_of(self, messages: Sequence[LLMMessage], result: CreateResult) -> int:
        """Return how many tokens a request and its answer have: an estimate if need be."""
        usage = result.usage
        if usage.prompt_tokens:
            return usage.prompt_tokens + usage.completion_tokens
        answer = AssistantMessage(content=str(result.content), source="assistant")
        return self.client.count_tokens([self.system_message, *messages, answer])

    def total_usage(self) -> RequestUsage:
        """Return `usage`."""
        return self.usage

    actual_usage = total_usage


def _reason(error: ModelError) -> str:
    if error.status == RATE_LIMIT:
        return "the service has reached its rate limit"
    if error.status is None:
        return "the service cannot be reached"
    return f"the service answered with status {error.status}"
