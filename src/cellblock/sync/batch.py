"""run_many, without `await`."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator
from typing import Self, TypeAlias

from ..aio.background_loop import background_loop
from ..aio.shielded import run_to_end
from ..batch.journal import Journal
from ..batch.programs import JudgeLimits, Program
from ..batch.run import OnProgress
from ..batch.run import run_many as run_many_async
from ..batch.tests import Tests
from ..batch.verdicts import Verdict
from ..components import SavedComponent
from ..executors.base import CodeExecutor
from .base import SyncCodeExecutor

_Question: TypeAlias = asyncio.Future[Program | None]


def run_many(
    programs: Iterable[Program],
    *,
    executor: CodeExecutor | SyncCodeExecutor | SavedComponent | None = None,
    concurrency: int | None = None,
    limits: JudgeLimits | None = None,
    tests: Tests | None = None,
    cluster: str | None = None,
    ordered: bool = True,
    journal: str | os.PathLike[str] | Journal | None = None,
    retries: int = 2,
    on_progress: OnProgress | None = None,
) -> Generator[Verdict]:
    """Judge `programs` and yield their verdicts. See `cellblock.batch.run_many`.

    `programs` is read in the calling thread, while it waits for a verdict. An interrupt (Ctrl-C)
    ends all runs.
    """
    if not isinstance(programs, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
        raise ValueError(f"Pass an iterable of programs, not a {type(programs).__name__}.")
    source = _Source()
    verdicts = run_many_async(
        source,
        executor=executor.dump_component() if isinstance(executor, SyncCodeExecutor) else executor,
        concurrency=concurrency,
        limits=limits,
        tests=tests,
        cluster=cluster,
        ordered=ordered,
        journal=journal,
        retries=retries,
        on_progress=on_progress,
    )
    return _iterate(iter(programs), source, verdicts)


def _iterate(
    programs: Iterator[Program], source: _Source, verdicts: AsyncGenerator[Verdict, None]
) -> Generator[Verdict]:
    """Yield the verdicts, and give a program to `source` whenever it asks for one."""
    loop = background_loop()
    messages = loop.iterate(_messages(source, verdicts))
    with contextlib.closing(messages):
        for message in messages:
            if isinstance(message, Verdict):
                yield message
            else:
                loop.loop.call_soon_threadsafe(_answer, message, next(programs, None))


class _Source:
    """The programs as the background loop sees them: it asks for each, and awaits the answer."""

    def __init__(self) -> None:
        self.messages = asyncio.Queue[Verdict | _Question | None]()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Program:
        question: _Question = asyncio.get_running_loop().create_future()
        self.messages.put_nowait(question)
        program = await question
        if program is None:
            raise StopAsyncIteration
        return program


def _answer(question: _Question, program: Program | None) -> None:
    if not question.done():  # cancelled: the generator is being closed
        question.set_result(program)


async def _messages(
    source: _Source, verdicts: AsyncGenerator[Verdict, None]
) -> AsyncGenerator[Verdict | _Question, None]:
    """Yield the verdicts and the questions of `source`, in the order in which they come."""

    async def put_verdicts() -> None:
        try:
            async with contextlib.aclosing(verdicts):
                async for verdict in verdicts:
                    source.messages.put_nowait(verdict)
        finally:
            source.messages.put_nowait(None)

    work = asyncio.create_task(put_verdicts())
    try:
        while (message := await source.messages.get()) is not None:
            yield message
        await work
    finally:
        work.cancel()
        await run_to_end(asyncio.wait([work]))
