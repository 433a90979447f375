"""One run of a `CodeExecutorAgent` with a model: generate, run, correct, reflect."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

from pydantic import BaseModel, ValidationError

from ..blocks import CodeBlock
from ..errors import ModelError, ModelOutputError
from ..models.client import JsonOutput
from ..models.messages import UserMessage
from ..models.structured_output import checked_output, json_instruction
from .base import Response
from .cancellable import cancelled_by
from .code_turns import NO_TOOLS, Coder, CodeTurns
from .left_out_blocks import (
    advise_nothing_ran,
    describe_left_out,
    is_program,
    left_out_languages,
)
from .messages import AgentMessage, CodeGenerationEvent
from .model_calls import text_of, visible_messages
from .run_budget import RunBudget
from .runnable_blocks import calls_tools, language_family, runnable_blocks

# AutoGen's prompt. {output} is what the model was shown of the result, if that is not the last
# message.
_RETRY_PROMPT = (
    "The most recent code execution resulted in an error{output}\n\n"
    "Should we attempt to resolve it? Please respond with:\n"
    "- A boolean value for 'retry' indicating whether it should be retried.\n"
    "- A detailed explanation in 'reason' that identifies the issue, justifies your decision to "
    "retry or not, and outlines how you would resolve the error if a retry is attempted."
)
_REFUSED = (400, 404, 422, 500, 501)  # what servers answer to an option that they do not have
# What differs between two runs of a block with the same error.
_NAMES_OF_BLOCKS = re.compile(r"tmp_code_[0-9a-f]+|Cell In ?\[\d+\]")


class RetryDecision(BaseModel):
    """Whether to try again, and how the model would correct the error."""

    reason: str
    retry: bool


class CodeTask(CodeTurns):
    """Write code for the conversation in the context, run it, and answer with what it showed.

    The run ends without another attempt if the code succeeds, the attempts are used up, the model
    decides so, or continuing makes no sense: the model repeats its code or its error, or answers
    with nothing, with nonsense or with half an answer. In these cases a `ThoughtEvent` and the
    metadata "stop_reason" of the answer say so. If `budget` is used up, the run ends without an
    answer.
    """

    def __init__(self, coder: Coder, budget: RunBudget) -> None:
        super().__init__(coder, budget)
        self._codes: list[list[tuple[str, str]]] = []  # of all attempts
        self._errors: list[str] = []
        self._was_told = False  # that there are no tools

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
        async with aclosing(self._ask_for_code()) as events:
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

    async def _ask_for_code(self) -> AsyncGenerator[AgentMessage, None]:
        """Ask. Tell a model that calls tools how code is run, once, and ask again."""
        languages = self._coder.languages
        while True:
            async with aclosing(self._ask()) as events:
                async for event in events:
                    yield event
            text = self._answer.text
            if runnable_blocks(text, languages) or not calls_tools(text):
                return
            if self._was_told or self._budget.stop_reason is not None:
                yield self._stop(NO_TOOLS)
                return
            self._was_told = True
            yield await self._tell(advise_nothing_ran(text, languages))

    async def _tell_left_out(self, *, has_others: bool) -> AsyncGenerator[AgentMessage, None]:
        """Say, also to the model, which blocks of the answer do not run."""
        coder, text = self._coder, self._answer.text
        left_out = left_out_languages(text, coder.languages)
        if not left_out:
            return
        told = describe_left_out(left_out, coder.languages)
        thought = await self._tell(told)
        if has_others or not any(map(is_program, left_out)):
            yield thought
        else:
            yield self._stop(told)

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
        if self._coder.client.model_info.get("structured_output"):
            try:
                return await self._decision(RetryDecision, "")
            except ModelError as error:
                # Servers for local models often refuse `response_format`.
                if error.status not in _REFUSED:
                    raise
        return await self._decision(None, f"\n{json_instruction(RetryDecision)}")

    async def _decision(self, json_output: JsonOutput, instruction: str) -> RetryDecision:
        coder, token = self._coder, self._budget.token
        messages, output = await coder.context.get_messages(), self._code_result.output
        is_shown = bool(messages) and output in str(messages[-1].content)
        prompt = _RETRY_PROMPT.format(output="." if is_shown else f":\n{output}") + instruction
        messages = [*messages, UserMessage(content=prompt, source=coder.name)]
        with cancelled_by(token):
            answer = await coder.client.create(
                visible_messages(coder.client, messages),
                json_output=json_output,
                cancellation_token=token,
            )
        self._budget.add_usage(answer.usage)
        text = text_of(checked_output(answer, RetryDecision), "The decision is not text.")
        return RetryDecision.model_validate_json(text)

    def _is_repeated(self, blocks: list[CodeBlock]) -> bool:
        code = [(language_family(block.language), block.code.strip()) for block in blocks]
        is_repeated = code in self._codes
        self._codes.append(code)
        return is_repeated
