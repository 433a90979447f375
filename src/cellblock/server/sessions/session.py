"""Session: one live session of an owner, with its files and its runs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Literal, TypeVar
from uuid import uuid4

from ...blocks import CodeBlock
from ...cancellation import CancellationToken
from ...errors import BackendError, ExecutorStopped
from ...events import Ended, Event
from ...executors.session.checkpointing import CheckpointableSession
from ...results import CodeResult, ResultBuilder
from ...startup_files import is_startup_file
from ..owners import Owner
from ..refusals import DiskQuotaExceeded, SessionNotFound
from .disk_quota import DiskQuota
from .executors import Program, ServedExecutor, ServedSession
from .factory import SessionFactory
from .files import SessionFiles

T = TypeVar("T")
_MAX_RUNS = 100  # whose results a session keeps for clients that ask later


@dataclass
class SessionRun:
    """One run of a session. `result` is None until it has ended.

    queue_seconds     time between the request and the start of the run
    is_asynchronous   whether no request waits for it
    failure           why it could not run; "" if it could
    terminal_mode     the form of tracebacks if output is that of IPython in a terminal
    request           what a client that chose the ID has sent, to tell a retry from another run
    ended             set at the end of a run in the background
    """

    id: str = field(default_factory=lambda: str(uuid4()))
    is_started: bool = False
    result: CodeResult | None = None
    queue_seconds: float = 0.0
    is_asynchronous: bool = False
    failure: str = ""
    language: str = "python"
    terminal_mode: Literal["Plain", "Context", "Verbose", "Minimal"] | None = None
    request: object = None
    token: CancellationToken = field(default_factory=CancellationToken)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class HostedSession:
    """A session of the store. Times are seconds since 1970.

    `lock` lets one run at a time use the interpreter. `users` counts the requests that use it.
    `factory` has made the executor.
    """

    def __init__(
        self,
        owner: Owner,
        identifier: str,
        executor: ServedExecutor,
        factory: SessionFactory,
        disk_quota: DiskQuota,
    ) -> None:
        self.owner, self.identifier = owner, identifier
        self.id = str(uuid4())
        self.created_at = self.last_used_at = time.time()
        self.users = 0
        self.is_closed = False
        self.lock = asyncio.Lock()
        self.runs = OrderedDict[str, SessionRun]()
        self._executor, self._factory, self._disk_quota = executor, factory, disk_quota
        self._open_lock = asyncio.Lock()
        self._is_open = False
        self._active: SessionRun | None = None
        self._cut: SessionRun | None = None  # the run that `close` has cancelled

    @property
    def executor(self) -> ServedExecutor:
        """The executor, for what the other methods do not offer."""
        return self._executor

    @property
    def is_live(self) -> bool:
        """Whether the session has a live interpreter. Else its runs are fresh processes."""
        return self._executor.is_live

    @property
    def checkpointable(self) -> CheckpointableSession:
        """The same executor, with its checkpoints and variables."""
        assert isinstance(self._executor, ServedSession)
        return self._executor

    @property
    def files(self) -> SessionFiles:
        """The files of the session, which must be open."""
        return SessionFiles(self._executor.work_dir, self._disk_quota.check, self._ignore_upload)

    def _ignore_upload(self, name: str) -> None:
        """Do not report an upload as a change by code.

        A startup file that is uploaded during a run is reported: code may have replaced it already.
        """
        if self._active is None or not is_startup_file(name):
            self._executor.ignore_upload(name)

    async def open(self) -> None:
        """Start the session if it is not started. Raise what starting an executor raises."""
        async with self._open_lock:
            if not self._is_open and not self.is_closed:
                if self._executor.must_start():  # asking needs no other thread
                    await self._executor.start()
                self._is_open = True
        self.check_open()

    def check_open(self) -> None:
        """Raise `SessionNotFound` if the session was closed."""
        if self.is_closed:
            raise SessionNotFound(
                f"The session {self.identifier!r} has ended. Send the request again for a new one."
            )

    async def close(self) -> None:
        """End the session and remove its files. A current run raises `ExecutorStopped`."""
        self.is_closed, is_idle = True, self._active is None
        if self._active is not None and not self._active.token.is_cancelled():
            # Stopping the executor ends the interpreter, but no program in another language.
            self._cut = self._active
            self._cut.token.cancel()
        async with self._open_lock:
            await self._factory.release(self._executor, is_idle=is_idle)

    def add_run(self, run: SessionRun) -> None:
        """Remember a run. The oldest ones are forgotten."""
        self.runs[run.id] = run
        while len(self.runs) > _MAX_RUNS:
            self.runs.popitem(last=False)

    async def execute(
        self, run: SessionRun, work: CodeBlock | Program, run_seconds: float | None
    ) -> CodeResult:
        """Run a block or program. Call it only while holding `lock`. Raise `DiskQuotaExceeded`."""
        with self._limits(run, run_seconds, await self._disk_quota.remaining()):
            result = await (
                self._executor.execute_code_blocks([work], run.token)
                if isinstance(work, CodeBlock)
                else self._executor.run_program(work, run.token)
            )
            self._check_cut(run)
            run.result = result
            return result

    async def stream(
        self, run: SessionRun, block: CodeBlock, run_seconds: float | None
    ) -> AsyncGenerator[Event]:
        """Run a block as `execute` does, and yield its events."""
        builder = ResultBuilder()
        with self._limits(run, run_seconds, await self._disk_quota.remaining()):
            async with contextlib.aclosing(
                self._executor.execute_stream([block], run.token)
            ) as events:
                async for event in events:
                    if isinstance(event, Ended):
                        self._check_cut(run)
                    builder.add_event(event)
                    yield event
        run.result = builder.session_result()

    async def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Call `work`: a checkpoint, restore or fork. Call it only while holding `lock`.

        It copies at most as many bytes as the disk quota leaves, or raises `CheckpointError`.
        """
        self.check_open()
        try:
            room = await self._disk_quota.remaining()
        except DiskQuotaExceeded:
            room = 1  # enough for what makes no copy
        with self._executor.lower_limits(written_bytes=room):
            return await work()

    @contextlib.contextmanager
    def _limits(
        self, run: SessionRun, run_seconds: float | None, written_bytes: int | None
    ) -> Generator[None]:
        self.check_open()
        run.is_started, self._active = True, run
        try:
            with self._executor.lower_limits(run_seconds, written_bytes, run.terminal_mode):
                yield
        except BackendError:
            self._check_cut(run)  # the folder of the session may be gone already
            raise
        finally:
            self._active = None

    def _check_cut(self, run: SessionRun) -> None:
        if self._cut is run:
            raise ExecutorStopped("The session was ended during the run.")
