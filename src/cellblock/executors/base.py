"""CodeExecutor: the one contract of all executors, and the template that each of them fills in."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import ClassVar, Self, TypeGuard

from ..aio.background_loop import engine
from ..blocks import Block, CodeBlock
from ..cancellation import Token
from ..components import Component
from ..events import Ended, Event, Started
from ..results import CodeResult, Folder
from .frame_decoder import CANCELLED_TEXT, EXIT_CANCELLED

_LIKE_THIS = """[CodeBlock(code="print('hi')", language="python")]"""


class CodeExecutor(Component, ABC):
    """Run code blocks in order, and say exactly what happened.

    An executor is made, started, used and stopped; it starts itself on first use, and `async with` starts and stops it. One
    executor can be used by many tasks, event loops and threads at once.

    What a program did is data, in the result; what we failed to do is an exception:

    * Blocks run in order; after the first whose exit code is not 0, no further one is run.
    * `exit_code` is the program's own, 128+N when signal N ended it, 124 after a time limit, 125 after a cancelled token, 137
      when memory ran out; `outcome` says which. Output so far is kept, and nothing of the block is left running.
    * An unknown language or a file name outside the work folder is exit code 1, and nothing is written or run.
    * When the awaiting task is cancelled, the block is ended and cleaned up, and then `asyncio.CancelledError` goes on up.
    * `BackendError`, `WorkspaceError`, `PackageError`, `FunctionError`: the block could not be run at all.

    Implementations fill in `_open`, `_close` and `_run_block`, which are called on the engine's loop alone; but the last one
    on that of any caller while `_serves_all_loops`.
    """

    component_type: ClassVar[str] = "code_executor"
    is_live: ClassVar[bool] = (
        False  # whether blocks share one live interpreter; else each is a fresh process
    )

    def __init__(self) -> None:
        self._is_open = False
        # Keeps "open" and the place behind it one fact while several calls start, restart or stop at once.
        self._changing = asyncio.Lock()

    # the public interface

    async def execute_code_blocks(
        self, code_blocks: Sequence[Block], cancellation_token: Token | None = None
    ) -> CodeResult:
        """Run `code_blocks` and give their result.

        Raises `ValueError` without blocks or for what is none, and our errors where they could not be run; see the class.
        """
        work = self._collect(_checked(code_blocks), cancellation_token)
        return await (work if self._serves_all_loops() else engine().call(work))

    def execute_stream(
        self, code_blocks: Sequence[Block], cancellation_token: Token | None = None
    ) -> AsyncGenerator[Event, None]:
        """Run `code_blocks` and give what happens as it happens; folded, the events are the result.

        A reader that stops early ends the block, as a cancelled task does.
        """
        return engine().stream(self._events(_checked(code_blocks), cancellation_token))

    async def start(self) -> None:
        """Get ready. Does nothing when that has been done. Raises our errors when it cannot be."""
        await engine().call(self._start())

    async def stop(self) -> None:
        """End what runs, and clean up. Does nothing when nothing is open; the next use starts it again."""
        await engine().call(self._stop())

    async def restart(self) -> None:
        """Stop and start: everything is fresh but the files of the work folder."""
        await engine().call(self._restart())

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def is_at_hand(self) -> bool:
        """Tell whether a thread without a loop had best run blocks by itself, right now; see `driver`."""
        return False

    # the template

    @abstractmethod
    async def _open(self) -> None:
        """Make the place ready. Leaves nothing behind when it raises."""

    @abstractmethod
    async def _close(self, *, restarting: bool) -> None:
        """End everything and clean up; while restarting, the work folder stays."""

    @abstractmethod
    def _run_block(
        self, number: int, block: CodeBlock, token: Token | None
    ) -> AsyncGenerator[Event, None]:
        """Run one block: `Started` first and `Ended` last. When closed early, it ends the block and cleans up."""

    def _serves_all_loops(self) -> bool:
        """Tell whether blocks can be run right now on the caller's own loop, which spares two turns of threads."""
        return False

    async def _start(self) -> None:
        async with self._changing:
            if not self._is_open:
                await self._open()
                self._is_open = True

    async def _starting(self) -> AsyncGenerator[Event, None]:
        """Start, as `_start` does; give what there is to tell of it meanwhile."""
        await self._start()
        for event in ():
            yield event

    async def _stop(self) -> None:
        async with self._changing:
            if self._is_open:
                self._is_open = False
                await self._close(restarting=False)

    async def _restart(self) -> None:
        async with self._changing:
            if self._is_open:
                self._is_open = False
                await self._close(restarting=True)
            await self._open()
            self._is_open = True

    async def _events(
        self, blocks: Sequence[CodeBlock], token: Token | None
    ) -> AsyncGenerator[Event, None]:
        if not self._is_open:
            async with contextlib.aclosing(engine().stream(self._starting())) as news:
                async for event in news:
                    yield event
        for number, block in enumerate(blocks):
            if token is not None and token.is_cancelled():
                for event in _never_run(number, block):
                    yield event
                return
            exit_code = 0
            async with contextlib.aclosing(self._run_block(number, block, token)) as events:
                async for event in events:
                    if isinstance(event, Ended):
                        exit_code = event.exit_code
                    yield event
            if exit_code != 0:
                return

    async def _collect(self, blocks: Sequence[CodeBlock], token: Token | None) -> CodeResult:
        """Do what `_events` does, without a generator around that of each block: that is a tenth of a short block's time."""
        if not self._is_open:
            await engine().call(self._start())
        folder = Folder()
        for number, block in enumerate(blocks):
            if token is not None and token.is_cancelled():
                for event in _never_run(number, block):
                    folder.add(event)
                break
            events = self._run_block(number, block, token)
            try:
                async for event in events:
                    folder.add(event)
            finally:
                await events.aclose()
            if folder.blocks[-1].exit_code != 0:
                break
        return self._result(folder)

    def _result(self, folder: Folder) -> CodeResult:
        """Give the kind of result that this kind of executor has."""
        return folder.result()


def _never_run(number: int, block: CodeBlock) -> tuple[Event, ...]:
    return Started(number, block.language), Ended(
        number, EXIT_CANCELLED, "cancelled", message=CANCELLED_TEXT
    )


def _checked(blocks: object) -> list[CodeBlock]:
    """Give `blocks` as a list of ours. Raises `ValueError` where they are none, or there are none."""
    if not _can_be_list(blocks):
        raise ValueError(
            f"Code blocks are passed as a list, not as a {_name(blocks)}: {_LIKE_THIS}"
        )
    checked = [_block(block) for block in blocks]
    if not checked:
        raise ValueError("There are no code blocks to run.")
    return checked


def _can_be_list(blocks: object) -> TypeGuard[Iterable[object]]:
    # One block of another package may be iterable as well: pydantic's objects give their fields.
    return (
        not hasattr(blocks, "code")
        and not isinstance(blocks, str | bytes | Mapping)
        and isinstance(blocks, Iterable)
    )


def _block(block: object) -> CodeBlock:
    code, language = getattr(block, "code", None), getattr(block, "language", None)
    if isinstance(code, str) and isinstance(language, str):
        return block if isinstance(block, CodeBlock) else CodeBlock(code, language)
    if hasattr(block, "code") and hasattr(block, "language"):
        kinds = f"{_name(code)} and {_name(language)}"
        raise ValueError(
            f"The code and the language of a {_name(block)} must be texts, not {kinds}."
        )
    raise ValueError(
        f"A {_name(block)} is no code block: pass {_LIKE_THIS}, or objects with the same two attributes."
    )


def _name(value: object) -> str:
    """Give the name of the class of `value`, with its module."""
    kind = type(value)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
