"""run_many: judge many programs, several at a time."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..aio.shielded import run_in_thread, run_to_end
from ..components import SavedComponent
from ..errors import BackendError
from ..executors.base import CodeExecutor
from .index import ProgramIndex
from .journal import Journal
from .pool import ProgramPool, WorkerPool, usable_cpus
from .programs import JudgeLimits, Program
from .ray_pool import RayPool
from .source_program import check_language
from .summary import Summary
from .tests import Tests
from .verdicts import Verdict
from .worker import WorkerSettings

Programs = Iterable[Program] | AsyncIterable[Program]
OnProgress = Callable[[Summary], object]
_END = object()
_MIN_LOOK_AHEAD = 64  # programs, if the order is kept
_MAX_FAILURES = 10  # programs in a row that could not be judged


@dataclass(frozen=True, kw_only=True)
class _Options:
    """The arguments of `run_many`, checked."""

    limits: JudgeLimits
    tests: Tests | None
    is_ordered: bool
    on_progress: OnProgress | None


class _Position(NamedTuple):
    """A program that runs: its place in the batch, and the digest of what is judged."""

    number: int
    program_id: str
    digest: str


def run_many(
    programs: Programs,
    *,
    executor: CodeExecutor | SavedComponent | None = None,
    concurrency: int | None = None,
    limits: JudgeLimits | None = None,
    tests: Tests | None = None,
    cluster: str | None = None,
    ordered: bool = True,
    journal: str | os.PathLike[str] | Journal | None = None,
    retries: int = 2,
    on_progress: OnProgress | None = None,
) -> AsyncGenerator[Verdict, None]:
    """Judge `programs` and yield a verdict on each of them.

    programs      an iterable, also an asynchronous or an endless one. It is read only as fast as
                  programs run: memory does not grow with their number
    executor      a command-line executor, or a saved one: programs run in new executors like it,
                  which show each of them nothing of earlier ones. None: a sandbox
    concurrency   how many programs run at a time. None: one on each CPU that is usable
    limits        how much one run may use. None: `JudgeLimits()`
    tests         the tests of programs that have none
    cluster       the address of a Ray cluster whose nodes run the programs, or "auto"; see
                  `ray.init`. Then `concurrency` is the number of CPUs to use; None: all of the
                  cluster. Needs the extra `ray` here, and Cellblock on all nodes
    ordered       yield the verdicts in the order of the programs, else as they are known. At
                  most 64 verdicts, or 16 for each program that runs, wait for an earlier one
    journal       a file that keeps the verdicts. If it has verdicts of an earlier run on the same
                  programs, these are yielded, and the programs are not run again
    retries       how often a program is run again after a failure of our own, such as a server
                  that was killed. Then its verdict is "not_judged". A verdict is final
    on_progress   is called with the `Summary` before each verdict is yielded

    Raise `ValueError` for wrong arguments, a program that is no `Program`, or two with the same
    ID, `JournalError` for a journal that does not fit, and the errors of `CodeExecutor.start`.
    Raise `BackendError` if ten programs in a row could not be judged. Closing the generator early
    ends all runs.
    """
    if concurrency is not None:
        _check_count("concurrency", concurrency, 1)
    _check_count("retries", retries, 0)
    if not isinstance(programs, Iterable | AsyncIterable):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
        raise ValueError(f"Pass an iterable of programs, not a {type(programs).__name__}.")
    limits = JudgeLimits() if limits is None else limits
    settings = WorkerSettings(executor, limits)
    pool = (
        WorkerPool(settings, concurrency or usable_cpus(), retries)
        if cluster is None
        else RayPool(cluster, settings, retries, concurrency)
    )
    options = _Options(
        limits=limits,
        tests=tests,
        is_ordered=ordered,
        on_progress=on_progress,
    )
    return _run(programs, pool, journal, options)


def _check_count(name: str, value: object, minimum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ValueError(f"{name} must be a whole number of at least {minimum}, not {value!r}.")


async def _run(
    programs: Programs,
    pool: ProgramPool,
    journal: str | os.PathLike[str] | Journal | None,
    options: _Options,
) -> AsyncGenerator[Verdict, None]:
    with contextlib.ExitStack() as cleanup:
        if journal is not None and not isinstance(journal, Journal):
            journal = cleanup.enter_context(Journal(journal))
        async with pool:
            batch = _Batch(programs, pool, journal, options)
            try:
                async for verdict in batch.verdicts():
                    yield verdict
            finally:
                await batch.close()


class _Batch:
    """The programs that were taken, and the verdicts on them that were not yielded yet."""

    def __init__(
        self, programs: Programs, pool: ProgramPool, journal: Journal | None, options: _Options
    ) -> None:
        self._pool, self._journal, self._options = pool, journal, options
        self._index = ProgramIndex() if journal is None else None
        self._source = aiter(programs) if isinstance(programs, AsyncIterable) else iter(programs)
        self._summary, self._failures = Summary(), 0
        self._taken = self._yielded = 0
        self._is_exhausted = False
        self._taking: asyncio.Task[object] | None = None  # the next of an asynchronous iterable
        self._running: dict[asyncio.Task[Verdict], _Position] = {}
        self._ended = asyncio.Queue[asyncio.Task[Any]]()
        self._known: dict[int, Verdict] = {}  # by the position of the program

    async def verdicts(self) -> AsyncIterator[Verdict]:
        """Yield the verdicts."""
        while True:
            while (position := self._next_position()) is not None:
                self._yielded += 1
                verdict = self._known.pop(position)
                if self._options.on_progress is not None:
                    self._options.on_progress(self._summary)
                yield verdict
            self._take_programs()
            if self._running or self._taking is not None:
                await self._handle_end(await self._ended.get())
            elif not self._known:
                return

    async def close(self) -> None:
        """End all runs."""
        tasks = [*self._running, *([] if self._taking is None else [self._taking])]
        for task in tasks:
            task.cancel()
        if tasks:
            await run_to_end(asyncio.wait(tasks))
        for task in tasks:
            if not task.cancelled():
                task.exception()  # so that asyncio does not log it as never retrieved
        if self._index is not None:
            self._index.close()

    def _next_position(self) -> int | None:
        """Return the position of a program whose verdict is to be yielded now."""
        if not self._options.is_ordered:
            return next(iter(self._known), None)
        return self._yielded if self._yielded in self._known else None

    def _has_room(self) -> bool:
        places = self._pool.places
        ahead = max(_MIN_LOOK_AHEAD, 8 * places) if self._options.is_ordered else places
        return (
            not self._is_exhausted
            and self._taking is None
            and len(self._running) < places
            and self._taken - self._yielded < ahead
        )

    def _take_programs(self) -> None:
        """Take programs while there is room for more. An asynchronous iterable gives them later."""
        while self._has_room():
            if isinstance(self._source, AsyncIterator):
                self._taking = asyncio.create_task(_next_of(self._source))
                self._taking.add_done_callback(self._ended.put_nowait)
            else:
                self._add(next(self._source, _END))

    def _add(self, program: object) -> None:
        """Run the next program, unless its verdict is in the journal."""
        if program is _END:
            self._is_exhausted = True
            return
        if not isinstance(program, Program):
            raise ValueError(
                f"Program {self._taken + 1} is a {type(program).__name__}. Pass objects such as "
                "Program(id='1', code='print(1)')."
            )
        if program.tests is None and self._options.tests is not None:
            program = replace(program, tests=self._options.tests)
        check_language(program)
        digest, number = "", self._taken
        if self._journal is not None:
            digest = program.digest(self._options.limits)
            if (verdict := self._journal.find(program.id, digest)) is not None:
                self._summary.add(verdict, is_resumed=True)
                self._known[number] = verdict
        elif self._index is not None:
            self._index.add_program(program.id)
        self._taken += 1
        if number not in self._known:
            task = asyncio.create_task(self._pool.judge(program))
            self._running[task] = _Position(number, program.id, digest)
            task.add_done_callback(self._ended.put_nowait)

    async def _handle_end(self, task: asyncio.Task[Any]) -> None:
        """Add the program that was taken, or write the verdict that became known."""
        if task is self._taking:
            self._taking = None
            self._add(task.result())
            return
        position = self._running.pop(task)
        if error := task.exception():
            error.add_note(f"This happened to the program {position.program_id!r:.100}.")
            raise error
        verdict: Verdict = replace(task.result(), digest=position.digest)
        self._known[position.number] = verdict
        self._summary.add(verdict)
        self._failures = self._failures + 1 if verdict.outcome == "not_judged" else 0
        if self._failures >= _MAX_FAILURES:
            raise BackendError(
                f"{self._failures} programs in a row could not be judged. {verdict.message}"
            )
        if self._journal is not None:
            self._journal.write(verdict)
            if self._journal.must_sync():
                await run_in_thread(self._journal.sync)


async def _next_of(source: AsyncIterator[object]) -> object:
    return await anext(source, _END)
