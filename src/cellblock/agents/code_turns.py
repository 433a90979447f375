"""Turns of a model that writes code: ask it, run its code, and keep both in the context."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal

from ..blocks import CodeBlock
from ..executors.frame_decoder import CANCELLED_TEXT, EXIT_CANCELLED
from ..models.client import ChatCompletionClient
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
from ..results import CodeResult
from .base import Response
from .code_runs import CodeRun, CodeRunner
from .messages import (
    AgentMessage,
    CodeApprovalEvent,
    CodeExecutionEvent,
    CodeGenerationEvent,
    CodeOutputEvent,
    ModelClientStreamingChunkEvent,
    TextMessage,
    ThoughtEvent,
)
from .model_calls import ask_model, cut_off_metadata, text_of, without_thoughts
from .run_budget import RunBudget
from .runnable_blocks import call_as_text

NO_TOOLS = "The model calls tools, although there are none."
_CUT_OFF = {
    "length": "The model's answer was cut off. Code in it was not run. Raise max_tokens of the "
    "model client, or ask for less.",
    "content_filter": "The service filtered the model's answer. Code in it was not run.",
}


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


class CodeTurns:
    """One run of an agent. Subclasses say what follows on a turn."""

    def __init__(self, coder: Coder, budget: RunBudget) -> None:
        self._coder = coder
        self._budget = budget
        self._stop_reason: str | None = None
        # Results of the last step of each kind.
        self._answer = _Answer("", "", None)
        self._code_result = CodeResult(0, "")
        self._next: Literal["try again", "reflect", "respond"] = "respond"

    async def _ask(self, error: str | None = None) -> AsyncGenerator[AgentMessage, None]:
        """Ask the model, and put its answer into the context. Yield its pieces and its thought.

        Tool calls, although no tools were offered, become the text of `call_as_text`; with `error`
        they raise `ModelOutputError` with that message.
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
                if error is None and not isinstance(item.content, str):
                    text = "\n\n".join(map(call_as_text, item.content))
                    if coder.stream:
                        yield ModelClientStreamingChunkEvent(
                            content=text, source=coder.name, full_message_id=message_id
                        )
                else:
                    text = text_of(item, error or "")
                await coder.context.add_message(
                    AssistantMessage(content=text, thought=item.thought, source=coder.name)
                )
                self._answer = _Answer(message_id, text, item.usage, cut_off_metadata(item))

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

    async def _tell(self, text: str) -> ThoughtEvent:
        """Tell the model `text`."""
        await self._coder.context.add_message(UserMessage(content=text, source=self._coder.name))
        return ThoughtEvent(content=text, source=self._coder.name)

    def _stop(self, reason: str) -> ThoughtEvent:
        self._stop_reason = reason
        return ThoughtEvent(content=reason, source=self._coder.name)
