"""Run blocks for an agent: approval, live output, and the text that the model reads."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from ..aio.shielded import wait_shielded
from ..blocks import CodeBlock
from ..cancellation import CancellationToken
from ..events import Event, Output
from ..executors.base import CodeExecutor
from ..executors.places.base import has_network
from ..fences import fenced
from ..models.messages import LLMMessage
from ..observation import Picture, observe
from ..overrides import is_overridden
from ..results import CodeResult, ResultBuilder
from .approval import ApprovalFuncType, ApprovalRules, decide
from .cancellable import cancelled_by
from .messages import CodeApprovalEvent, CodeOutputEvent

T = TypeVar("T")


class RunsCodeBlocks(Protocol):
    """An executor: Cellblock's, AutoGen's, or one that implements AutoGen's interface."""

    async def execute_code_blocks(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> Any:
        """Run blocks. Return an object with the attributes `exit_code` and `output`."""
        ...


@runtime_checkable
class StreamsCodeBlocks(Protocol):
    """One of our executors, or an object around one that sees what happens."""

    @property
    def is_live(self) -> bool:
        """See `CodeExecutor`."""
        ...

    def execute_stream(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Event, None]:
        """See `CodeExecutor`."""
        ...


def check_executor(executor: object) -> None:
    """Raise `ValueError` if `executor` is not an executor, or is a synchronous one."""
    execute = getattr(executor, "execute_code_blocks", None)
    if isinstance(executor, type) or execute is None:
        raise ValueError(
            "code_executor must be an executor such as SandboxCommandLineCodeExecutor(), "
            f"not {executor!r:.100}."
        )
    if inspect.isroutine(execute) and not inspect.iscoroutinefunction(inspect.unwrap(execute)):
        raise ValueError(
            f"code_executor cannot be a synchronous {type(executor).__name__}. Import "
            "the executor from cellblock instead of cellblock.sync, or make execute_code_blocks "
            "an async method."
        )


@dataclass(frozen=True)
class CodeRun:
    """What blocks did. The output of `result` is what a model should read."""

    result: CodeResult
    pictures: tuple[Picture, ...] = ()


RunEvent = CodeApprovalEvent | CodeOutputEvent


@dataclass(frozen=True)
class CodeRunner:
    """How an agent runs code. `source` is its name.

    If a subclass of the agent has an `execute_code_block` of its own, that is `override`.
    """

    source: str
    executor: RunsCodeBlocks
    approval: ApprovalFuncType | ApprovalRules | None
    max_output_characters: int | None
    override: Callable[[list[CodeBlock], CancellationToken], Awaitable[Any]] | None = None

    async def run(
        self,
        blocks: list[CodeBlock],
        *,
        context: list[LLMMessage],
        token: CancellationToken,
        attempt: int = 0,
    ) -> AsyncGenerator[RunEvent | CodeRun, None]:
        """Run `blocks` if they are approved. Yield events as they happen, and the `CodeRun` last.

        Raise `CancelledError` if `token` is cancelled before the blocks run. If it is cancelled
        then, the result says so; an executor that is not Cellblock's is interrupted. Raise the
        errors of the executor and of the approval function.
        """
        if self.override is not None:
            result = _our_result(await self.override(blocks, token))
            yield CodeRun(result, observe(result).pictures)
            return
        edited: list[CodeBlock] = []
        if self.approval is not None:
            with cancelled_by(token):
                decision = await decide(self.approval, blocks, context)
            edited = list(decision.edited_blocks)
            yield CodeApprovalEvent(
                source=self.source,
                retry_attempt=attempt,
                approved=decision.approved,
                reason=decision.reason,
                hints=list(decision.hints),
                edited_blocks=edited,
            )
            if not decision.approved:
                text = f"Code execution was not approved. Reason: {decision.reason}"
                yield CodeRun(CodeResult(1, text, outcome="error"))
                return
        with cancelled_by(token):
            pass  # cancelled by a reader of the last event
        if (executor := _streaming(self.executor)) is not None:
            stream = self._run_streamed(executor, edited or blocks, token, attempt)
            async with aclosing(stream):
                async for item in stream:
                    yield self.shown(item, edited) if isinstance(item, CodeResult) else item
        else:
            # Some of these do not look at the token.
            with cancelled_by(token):
                result = await self.executor.execute_code_blocks(edited or blocks, token)
            yield self.shown(_our_result(result), edited)

    async def _run_streamed(
        self,
        executor: StreamsCodeBlocks,
        blocks: list[CodeBlock],
        token: CancellationToken,
        attempt: int,
    ) -> AsyncGenerator[RunEvent | CodeResult, None]:
        builder = ResultBuilder()
        async with aclosing(executor.execute_stream(blocks, token)) as events:
            while (event := await _finish(_next_event(events), token)) is not None:
                builder.add_event(event)
                # After a cancellation only the result is awaited.
                if isinstance(event, Output) and not token.is_cancelled():
                    yield CodeOutputEvent(
                        content=event.text,
                        source=self.source,
                        retry_attempt=attempt,
                        block=event.block,
                        stream=event.stream,
                    )
        yield builder.session_result() if executor.is_live else builder.result()

    def shown(self, result: CodeResult, edited: Sequence[CodeBlock] = ()) -> CodeRun:
        """Return `result` with as much output as is shown, after the code if it was `edited`."""
        seen = observe(
            result,
            max_characters=self.max_output_characters,
            has_network=has_network(self.executor),
        )
        text = describe_edited(edited) + seen.text
        return CodeRun(dataclasses.replace(result, output=text), seen.pictures)


def describe_edited(blocks: Sequence[CodeBlock]) -> str:
    """Return what a model is told before the output of code that was edited; "" without any."""
    if not blocks:
        return ""
    code = "\n\n".join(fenced(block.code, block.language) for block in blocks)
    return f"The code was changed before it ran. This ran instead:\n\n{code}\n\nIts output:\n"


def _streaming(executor: RunsCodeBlocks) -> StreamsCodeBlocks | None:
    """Return `executor` if it streams: a filter in its `execute_code_blocks` would see no block."""
    is_ours = issubclass(type(executor), CodeExecutor)
    if is_ours and is_overridden(executor, "execute_code_blocks"):
        return None
    return executor if isinstance(executor, StreamsCodeBlocks) else None


async def _next_event(events: AsyncGenerator[Event, None]) -> Event | None:
    return await anext(events, None)


async def _finish(work: Coroutine[Any, Any, T], token: CancellationToken) -> T:
    """Return the result of `work`, which ends after `token` is cancelled.

    A cancellation of this task for the sake of `token` does not interrupt it: the output would be
    lost.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if token.is_cancelled():
            return await task
        task.cancel()
        await wait_shielded(asyncio.wait([task]))
        raise


def _our_result(result: Any) -> CodeResult:
    """Return the result of a foreign executor as a `CodeResult`."""
    if isinstance(result, CodeResult):
        return result
    exit_code = int(result.exit_code)
    return CodeResult(exit_code, str(result.output), outcome="error" if exit_code else "ok")
