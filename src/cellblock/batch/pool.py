"""WorkerPool: judge several programs at a time, and judge again what failed through us."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator
from dataclasses import replace
from types import TracebackType
from typing import Protocol, Self

from ..aio.background_loop import background_loop
from ..aio.shielded import run_to_end
from ..errors import BackendError, WorkspaceError
from .programs import Program
from .verdicts import Verdict
from .worker import Worker, WorkerSettings

_RETRY_SECONDS = 0.1  # before the first retry; each further one waits four times as long


def usable_cpus() -> int:
    """Return how many CPUs this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class ProgramPool(Protocol):
    """Where programs are judged, several at a time. Entering starts it, leaving ends all runs."""

    @property
    def places(self) -> int:
        """How many programs may run or wait to run, so that none of its CPUs is idle."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    async def judge(self, program: Program) -> Verdict:
        """Return the verdict on `program`."""
        ...


class WorkerPool:
    """At most `size` workers, started when they are needed. Entering starts the first one.

    Leaving stops all of them, after their programs. May be used on any event loop.
    """

    def __init__(self, settings: WorkerSettings, size: int, retries: int) -> None:
        self._settings, self._retries = settings, retries
        self.places = 2 * size  # one waits for each that runs
        self._places = asyncio.Semaphore(size)  # waited for on the background loop alone
        self._idle: list[Worker] = []
        self._workers: list[Worker] = []

    async def __aenter__(self) -> Self:
        """Start. Raise the errors of `CodeExecutor.start`."""
        await background_loop().call(self._start_first())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await background_loop().call(run_to_end(self._stop()))

    async def _start_first(self) -> None:
        try:
            async with self._worker() as worker:
                await worker.clean_executor()
        except BaseException:
            await self._stop()
            raise

    async def _stop(self) -> None:
        await asyncio.gather(*(worker.stop() for worker in self._workers))

    async def judge(self, program: Program) -> Verdict:
        """Return the verdict on `program` as soon as a worker is free."""
        return await background_loop().call(self._judge(program))

    async def _judge(self, program: Program) -> Verdict:
        attempt = 1
        while True:
            try:
                async with self._worker() as worker:
                    verdict = await worker.judge(program)
                return replace(verdict, attempts=attempt)
            except (BackendError, WorkspaceError) as error:
                if attempt > self._retries:
                    message = f"{type(error).__name__}: {error}"
                    return Verdict(
                        id=program.id, outcome="not_judged", message=message, attempts=attempt
                    )
            await asyncio.sleep(_RETRY_SECONDS * 4 ** (attempt - 1))
            attempt += 1

    @contextlib.asynccontextmanager
    async def _worker(self) -> AsyncGenerator[Worker]:
        """Wait for a free worker, and yield it."""
        async with self._places:
            if not self._idle:
                self._idle.append(Worker(self._settings))
                self._workers.append(self._idle[-1])
            worker = self._idle.pop()
            try:
                yield worker
            finally:
                self._idle.append(worker)
