"""Run code blocks with any executor, from synchronous and from asynchronous chats."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from ...aio.background_loop import background_loop
from ...aio.shielded import wait_shielded
from ...blocks import CodeBlock, MarkdownCodeExtractor
from ...cancellation import ABANDONED_GRACE, CancellationToken
from ...executors.base import CodeExecutor
from ...languages import find_language
from ...results import CodeResult

T = TypeVar("T")


class ExecutesCodeBlocks(Protocol):
    """An executor: one of `cellblock`, `cellblock.sync`, `chat.coding`, AutoGen, or your own."""

    def execute_code_blocks(self, code_blocks: list[CodeBlock], /) -> Any:
        """Run blocks. Return an object with `exit_code` and `output`, or an awaitable of one."""
        ...


def find_code_blocks(executor: ExecutesCodeBlocks | None, content: Any) -> list[CodeBlock]:
    """Return the blocks in a message's content, found with the `code_extractor` of `executor`.

    Blocks without any code are left out.
    """
    extractor: Any = getattr(executor, "code_extractor", None) or MarkdownCodeExtractor()
    return [block for block in extractor.extract_code_blocks(content) if block.code.strip()]


def execute_blocks(executor: ExecutesCodeBlocks, blocks: list[CodeBlock]) -> Any:
    """Run `blocks` and return their result. Raise the errors of the executor."""
    result = _call(executor, blocks, CancellationToken())
    return background_loop().run(_await(result)) if inspect.isawaitable(result) else result


async def a_execute_blocks(executor: ExecutesCodeBlocks, blocks: list[CodeBlock]) -> Any:
    """Run `blocks` and return their result, without blocking the event loop.

    If the task is cancelled, the blocks are cancelled, where the executor supports that.
    """
    if _is_async(executor):
        return await _call(executor, blocks, CancellationToken())
    token = CancellationToken()
    result = await call_in_thread(_call, executor, blocks, token, on_cancel=token.cancel)
    return await result if inspect.isawaitable(result) else result


async def call_in_thread(
    function: Callable[..., T],
    *arguments: Any,
    on_cancel: Callable[[], None] | None = None,
    **options: Any,
) -> T:
    """Call `function` in a thread with the context of this task, and return its result.

    If the task is cancelled, `on_cancel` is called, once more if the function does not return soon.
    It still runs to its end before `CancelledError` is raised.
    """
    work = asyncio.ensure_future(asyncio.to_thread(function, *arguments, **options))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if not work.done():
            if on_cancel is not None:
                on_cancel()
                loop = asyncio.get_running_loop()
                timer = loop.call_later(ABANDONED_GRACE, on_cancel)
                work.add_done_callback(lambda _: timer.cancel())
            await wait_shielded(asyncio.wait([work]))
        if not work.cancelled():
            work.exception()
        raise


def unrun_language(result: Any) -> str | None:
    """Return the language of the last block if no block of `result` was run or saved, else None.

    Executors leave out blocks that are not code, such as JSON, and end with exit code 0.
    """
    blocks = result.blocks if isinstance(result, CodeResult) else ()
    if not blocks or any(block.code_file is not None for block in blocks):
        return None
    languages = [find_language(block.language) for block in blocks]
    if all(language is not None and language.policy == "ignore" for language in languages):
        return blocks[-1].language
    return None


def _call(executor: ExecutesCodeBlocks, blocks: list[CodeBlock], token: CancellationToken) -> Any:
    execute: Callable[..., Any] = executor.execute_code_blocks
    if _takes_token(execute):
        execute = functools.partial(execute, cancellation_token=token)
    return execute(blocks)


def _takes_token(execute: Callable[..., Any]) -> bool:
    try:
        return "cancellation_token" in inspect.signature(execute).parameters
    except (TypeError, ValueError):  # no signature
        return False


def _is_async(executor: ExecutesCodeBlocks) -> bool:
    return isinstance(executor, CodeExecutor) or inspect.iscoroutinefunction(
        executor.execute_code_blocks
    )


async def _await(result: Awaitable[T]) -> T:
    return await result
