"""One run of a `CodeExecutorAgent` with a model: generate, run, correct, reflect."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel, ValidationError

from ..blocks import CodeBlock
from ..errors import ModelError, ModelOutputError
from ..executors.frame_decoder import CANCELLED_TEXT, EXIT_CANCELLED
from ..models.client import ChatCompletionClient, JsonOutput
from ..models.contexts import ChatCompletionContext
from ..models.image import Image
from ..models.messages import (
    AssistantMessage,
    CreateResult,
    LLMMessage,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from ..models.structured_output import checked_output, json_instruction
from ..results import CodeResult
from .base import Response
from .cancellable import cancelled_by
from .code_runs import CodeRun, CodeRunner
from .left_out_blocks import describe_left_out, is_program, left_out_languages
from .messages import (
    AgentMessage,
    CodeApprovalEvent,
    CodeExecutionEvent,
    CodeGenerationEvent,
    CodeOutputEvent,
    TextMessage,
    ThoughtEvent,
)
from .model_calls import ask_model, cut_off_metadata, text_of, visible_messages, without_thoughts
from .run_budget import RunBudget
from .runnable_blocks import language_family, runnable_blocks

# AutoGen's prompt. {output} is what the model was shown of the result.
_RETRY_PROMPT = (
    "The most recent code execution resulted in an error:\n{output}\n\n"
    "Should we attempt to resolve it? Please respond with:\n"
    "- A boolean value for 'retry' indicating whether it should be retried.\n"
    "- A detailed explanation in 'reason' that identifies the issue, justifies your decision to "
    "retry or not, and outlines how you would resolve the error if a retry is attempted."
)
_CUT_OFF = {
    "length": "The model's answer was cut off. Code in it was not run. Raise max_tokens of the "
    "model client, or ask for less.",
    "content_filter": "The service filtered the model's answer. Code in it was not run.",
}
_REFUSED = (400, 404, 422, 500, 501)  # what servers answer to an option that they do not have
# What differs between two runs of a block with the same error.
_NAMES_OF_BLOCKS = re.compile(r"tmp_code_[0-9a-f]+|Cell In ?\[\d+\]")


class RetryDecision(BaseModel):
    """Whether to try again, and how the model would correct the error."""

    reason: str
    retry: bool


@dataclass(frozen=True)
class Coder:
    """The parts and settings of an agent that writes code."""

    name: str
    client: ChatCompletionClient
    context: ChatCompletionContext
    system_messages: Sequence[SystemMessage]
    runner: CodeRunner
    languages: Sequence[str]
    stream: bool
    max_retries: int


@dataclass(frozen=True)
class _Answer:
    """What the model answered, and the ID of the message for it."""

    message_id: str
    text: str
    usage: RequestUsage | None
    cut_off: dict[str, str] = field(default_factory=dict[str, str])  # metadata; empty if it is not


class CodeTask:
    """Write code for the conversation in the context, run it, and answer with what it showed.

    The run ends without another attempt if the code succeeds, the attempts are used up, the model
    decides so, or continuing makes no sense: the model repeats its code or its error, or answers
    with nothing, with nonsense or with half an answer. In these cases a `ThoughtEvent` and the
    metadata "stop_reason" of the answer say so. If `budget` is used up, the run ends without an
    answer.
    """

    def __init__(self, coder: Coder, budget: RunBudget) -> None:
        self._coder = coder
        self._budget = budget
        self._codes: list[list[tuple[str, str]]] = []  # of all attempts
        self._errors: list[str] = []
        self._stop_reason: str | None = None
        # Results of the last step of each kind.
        self._answer = _Answer("", "", None)
        self._code_result = CodeResult(0, "")
        self._next: Literal["try again", "reflect", "respond"] = "reflect"

    async def run(self) -> AsyncGenerator[AgentMessage | Response, None]:
        """Yield what happens, and the `Response` last."""
        for attempt in range(self._coder.max_retries + 1):
            async with aclosing(self._try(attempt)) as events:
                async for event in events:
                    yield event
            if self._next != "try again":
                break
        if self._next != "respond":
            if self._budget.stop_reason is not None:
                return
            error = "Reflect on tool use produced no valid text response."
            async with aclosing(self._ask(error)) as events:
                async for event in events:
                    yield event
        for item in self._respond():
            yield item

    async def _try(self, attempt: int) -> AsyncGenerator[AgentMessage, None]:
        """Let the model write code, run it, and choose the next step."""
        async with aclosing(self._ask("The model answered without text.")) as events:
            async for event in events:
                yield event
        blocks = runnable_blocks(self._answer.text, self._coder.languages)
        if self._answer.cut_off:
            self._next = "respond"
            return
        async for event in self._tell_left_out(has_others=bool(blocks)):
            yield event
        if not blocks:
            self._next = "respond"
            return
        self._next = "reflect"
        yield self._generation(attempt, blocks)
        if self._is_repeated(blocks):
            yield self._stop("The model wrote the same code again. It was not run.")
            return
        async with aclosing(self._run_blocks(blocks, attempt)) as events:
            async for event in events:
                yield event
        if self._code_result.exit_code != 0 and attempt < self._coder.max_retries:
            async for event in self._decide(attempt):
                yield event

    async def _ask(self, error: str) -> AsyncGenerator[AgentMessage, None]:
        """Ask the model, and put its answer into the context. Yield its pieces and its thought.

        Raise `ModelOutputError` with the message `error` if it is not text.
        """
        coder, message_id = self._coder, str(uuid.uuid4())
        messages: list[LLMMessage] = [*coder.system_messages, *await coder.context.get_messages()]
        answer = ask_model(
            coder.client,
            messages,
            stream=coder.stream,
            source=coder.name,
            message_id=message_id,
            token=self._budget.token,
        )
        async with aclosing(answer):
            async for item in answer:
                if not isinstance(item, CreateResult):
                    yield item
                    continue
                self._budget.add_usage(item.usage)
                if item.thought:
                    yield ThoughtEvent(content=item.thought, source=coder.name)
                text = text_of(item, error)
                await coder.context.add_message(
                    AssistantMessage(content=text, thought=item.thought, source=coder.name)
                )
                self._answer = _Answer(message_id, text, item.usage, cut_off_metadata(item))

    async def _tell_left_out(self, *, has_others: bool) -> AsyncGenerator[AgentMessage, None]:
        """Say, also to the model, which blocks of the answer do not run."""
        coder, text = self._coder, self._answer.text
        left_out = left_out_languages(text, coder.languages)
        if not left_out:
            return
        told = describe_left_out(left_out, coder.languages)
        await coder.context.add_message(UserMessage(content=told, source=coder.name))
        if has_others or not any(map(is_program, left_out)):
            yield ThoughtEvent(content=told, source=coder.name)
        else:
            yield self._stop(told)

    async def _run_blocks(
        self, blocks: list[CodeBlock], attempt: int
    ) -> AsyncGenerator[AgentMessage, None]:
        """Run `blocks`, and put the result into the context. Yield what happens.

        If the task is cancelled, the context gets the output until then.
        """
        coder, run, output = self._coder, None, ""
        edited: list[CodeBlock] = []
        context = await coder.context.get_messages()
        items = coder.runner.run(blocks, context=context, token=self._budget.token, attempt=attempt)
        try:
            async with aclosing(items):
                async for item in items:
                    if isinstance(item, CodeRun):
                        run = item
                        continue
                    if isinstance(item, CodeApprovalEvent):
                        edited = item.edited_blocks
                    output += item.content if isinstance(item, CodeOutputEvent) else ""
                    yield item
        except (asyncio.CancelledError, GeneratorExit):
            if run is None and output:
                await self._add_cancelled_result(output, edited)
            raise
        assert run is not None
        self._code_result = run.result
        await coder.context.add_message(self._result_message(run))
        yield CodeExecutionEvent(retry_attempt=attempt, result=run.result, source=coder.name)
        self._budget.raise_if_cancelled()

    async def _add_cancelled_result(self, output: str, edited: Sequence[CodeBlock]) -> None:
        result = CodeResult(EXIT_CANCELLED, output + CANCELLED_TEXT, outcome="cancelled")
        message = self._result_message(self._coder.runner.shown(result, edited))
        await self._coder.context.add_message(message)

    async def _decide(self, attempt: int) -> AsyncGenerator[AgentMessage, None]:
        """Let the model decide on another attempt, and put its correction into the context."""
        error = _NAMES_OF_BLOCKS.sub("", self._code_result.output)
        if error in self._errors:
            yield self._stop("The code failed with the same error again.")
            return
        self._errors.append(error)
        if self._budget.stop_reason is not None:
            return
        try:
            decision = await self._ask_for_decision()
        except (ModelOutputError, ValidationError):
            yield self._stop("The model did not say in the requested form whether to try again.")
            return
        if not decision.retry or self._budget.stop_reason is not None:
            return
        self._next = "try again"
        content = f"Attempt number: {attempt + 1}\nProposed correction: {decision.reason}"
        # Not as an AssistantMessage: some services let the model continue the last one of those.
        await self._coder.context.add_message(UserMessage(content=content, source=self._coder.name))
        yield CodeGenerationEvent(
            retry_attempt=attempt, content=content, code_blocks=[], source=self._coder.name
        )

    async def _ask_for_decision(self) -> RetryDecision:
        """Return the model's decision: structured output if the service has it, else checked text.

        Raise `ModelOutputError` if it has another form.
        """
        if self._coder.client.model_info["structured_output"]:
            try:
                return await self._decision(RetryDecision, "")
            except ModelError as error:
                # Servers for local models often refuse `response_format`.
                if error.status not in _REFUSED:
                    raise
        return await self._decision(None, f"\n{json_instruction(RetryDecision)}")

    async def _decision(self, json_output: JsonOutput, instruction: str) -> RetryDecision:
        coder, token = self._coder, self._budget.token
        prompt = _RETRY_PROMPT.format(output=self._code_result.output) + instruction
        messages: list[LLMMessage] = [
            *await coder.context.get_messages(),
            UserMessage(content=prompt, source=coder.name),
        ]
        with cancelled_by(token):
            answer = await coder.client.create(
                visible_messages(coder.client, messages),
                json_output=json_output,
                cancellation_token=token,
            )
        self._budget.add_usage(answer.usage)
        text = text_of(checked_output(answer, RetryDecision), "The decision is not text.")
        return RetryDecision.model_validate_json(text)

    def _generation(self, attempt: int, blocks: list[CodeBlock]) -> CodeGenerationEvent:
        answer = self._answer
        return CodeGenerationEvent(
            id=answer.message_id,
            retry_attempt=attempt,
            content=answer.text,
            code_blocks=blocks,
            source=self._coder.name,
            models_usage=answer.usage,
        )

    def _respond(self) -> Iterator[AgentMessage | Response]:
        answer = self._answer
        if answer.cut_off:
            yield self._stop(_CUT_OFF[answer.cut_off["finish_reason"]])
        elif not without_thoughts(answer.text).strip():
            yield self._stop("The model's answer is empty.")
        stop = {} if self._stop_reason is None else {"stop_reason": self._stop_reason}
        message = TextMessage(
            id=answer.message_id,
            content=answer.text,
            source=self._coder.name,
            models_usage=answer.usage,
            metadata={**answer.cut_off, **stop},
        )
        yield Response(chat_message=message)

    def _result_message(self, run: CodeRun) -> UserMessage:
        """Return the result as the model sees it: with the pictures if it has vision."""
        text, name = run.result.output, self._coder.name
        if not run.pictures or not self._coder.client.model_info["vision"]:
            return UserMessage(content=text, source=name)
        images = [Image.from_bytes(picture.data, picture.mime_type) for picture in run.pictures]
        return UserMessage(content=[text, *images], source=name)

    def _stop(self, reason: str) -> ThoughtEvent:
        self._stop_reason = reason
        return ThoughtEvent(content=reason, source=self._coder.name)

    def _is_repeated(self, blocks: list[CodeBlock]) -> bool:
        code = [(language_family(block.language), block.code.strip()) for block in blocks]
        is_repeated = code in self._codes
        self._codes.append(code)
        return is_repeated
