"""Session: one live session of an owner, with its files and its runs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar
from uuid import uuid4

from ...batch.programs import JudgeLimits, Program
from ...batch.verdicts import Verdict
from ...blocks import CodeBlock
from ...cancellation import CancellationToken
from ...errors import BackendError, ExecutorStopped, SessionError
from ...events import Ended, Event
from ...executors.run_options import RunOptions
from ...executors.session.checkpoint import Checkpoint
from ...results import CodeResult, ResultBuilder
from ..owners import Owner
from ..refusals import DiskQuotaExceeded, SessionLost, SessionNotFound
from .disk_quota import DiskQuota
from .executors import (
    CommandItem,
    CommandSettings,
    JudgedWork,
    ServedExecutor,
    SessionFactory,
    Work,
)
from .lineage import Lineage
from .session_files import SessionFiles

T = TypeVar("T")
_NO_TERMINAL_INPUT = "EOF when reading a line"  # Python's words
_COMPLETE_SECONDS = 5.0  # the first one imports modules
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
    is_over           whether it has ended in any way, or was given up in the queue
    action            "run" or "command"
    outcome           that of its newest result; "" if there is none
    cpu_seconds       of all its results
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
    action: Literal["run", "command"] = "run"
    outcome: str = ""
    cpu_seconds: float = 0.0
    is_over: bool = False

    @contextlib.contextmanager
    def lasting(self) -> Generator[None]:
        """Let the run be over at the end of the context."""
        try:
            yield
        finally:
            self.is_over = True


class HostedSession:
    """A session of the store. Times are seconds since 1970.

    `lock` lets one run at a time use the interpreter. `users` counts the requests that use it.
    `factory` has made the executor. A session `is_registered` under its `session_id`, unless it
    ends with the request that it was made for.
    """

    def __init__(
        self,
        owner: Owner,
        identifier: str,
        executor: ServedExecutor,
        factory: SessionFactory,
        disk_quota: DiskQuota,
        session_id: str | None = None,
    ) -> None:
        self.owner, self.identifier = owner, identifier
        self.id, self.is_registered = session_id or str(uuid4()), session_id is not None
        self.created_at = self.last_used_at = time.time()
        self.users = 0
        self.is_closed = False
        self.lock = asyncio.Lock()
        self.runs = OrderedDict[str, SessionRun]()
        self.lineage = Lineage()
        self._served, self._factory, self._disk_quota = executor, factory, disk_quota
        self._counted_cpu_seconds = 0.0
        self._open_lock = asyncio.Lock()
        self._is_open = False
        self._active: SessionRun | None = None
        self._cut: SessionRun | None = None  # the run that `close` has cancelled

    @property
    def is_live(self) -> bool:
        """Whether the session has a live interpreter. Else its runs are fresh processes."""
        return self._served.is_live

    @property
    def node_id(self) -> str | None:
        """Ray's ID of the node that has the session; None for this machine."""
        return self._served.node_id

    @property
    def served(self) -> ServedExecutor:
        """The executor, for the store."""
        return self._served

    @property
    def files(self) -> SessionFiles:
        """The files of the session, which must be open."""
        return self._served.files(self._disk_quota.room_for)

    async def open(self) -> None:
        """Start the session if it is not started. Raise what starting an executor raises."""
        async with self._open_lock:
            if not self._is_open and not self.is_closed:
                if self._served.must_start():
                    await self._served.start(self.id)
                self._is_open = True
        self.check_open()

    def check_open(self) -> None:
        """Raise `SessionNotFound` if the session was closed."""
        if self.is_closed:
            raise SessionNotFound(
                f"The session {self.identifier!r} has ended. Send the request again for a new one."
            )

    def lost_error(self) -> SessionLost:
        """Return what a client is told if the session was lost."""
        if not self.is_registered:
            return SessionLost("What ran the code was lost. Send the request again.")
        return SessionLost(
            f"The session {self.identifier!r} was lost, with its variables and files: the process "
            "or machine that had it has ended. Send the request again for a new session."
        )

    def count_run(self, run: SessionRun) -> None:
        """Remember what a run of the session has used, which its key has been charged for."""
        if run.language in ("", "python"):  # a program in another language is not in the session
            self._counted_cpu_seconds += run.cpu_seconds

    async def uncounted_cpu_seconds(self) -> float:
        """Return what processes of the session have used that is in no result: count it now.

        A run leaves them behind, or does not wait for them.
        """
        used = await self._served.cpu_seconds() if self._is_open and self.is_live else None
        before, self._counted_cpu_seconds = self._counted_cpu_seconds, used or 0.0
        return max(0.0, (used or 0.0) - before)

    async def close(self) -> None:
        """End the session and remove its files. A current run raises `ExecutorStopped`."""
        self.is_closed, is_idle = True, self._active is None
        if self._active is not None and not self._active.token.is_cancelled():
            # Stopping the executor ends the interpreter, but no program in another language.
            self._cut = self._active
            self._cut.token.cancel()
        async with self._open_lock:
            await self._factory.release(self._served, is_idle=is_idle)

    def add_run(self, run: SessionRun) -> None:
        """Remember a run. The oldest ones are forgotten."""
        self.runs[run.id] = run
        while len(self.runs) > _MAX_RUNS:
            self.runs.popitem(last=False)

    async def execute(self, run: SessionRun, work: Work, run_seconds: float | None) -> CodeResult:
        """Run a block or program. Call it only while holding `lock`. Raise `DiskQuotaExceeded`."""
        options = await self._options(run, run_seconds)
        with self._active_run(run):
            result = await self._served.run(work, run.token, options)
            self._check_cut(run)
            run.result = result
            return result

    async def judge(
        self,
        run: SessionRun,
        program: Program,
        limits: JudgeLimits,
        seconds: float,
        on_cpu_seconds: Callable[[float], object],
    ) -> Verdict:
        """Judge a program as `ServedExecutor.judge` does. Raise `DiskQuotaExceeded`."""
        room = await self._disk_quota.remaining()
        work = JudgedWork(program=program, limits=limits, seconds=seconds, written_bytes=room)
        with self._active_run(run):
            verdict = await self._served.judge(work, run.token, on_cpu_seconds)
            self._check_cut(run)
            return verdict

    async def stream(
        self, run: SessionRun, block: CodeBlock, run_seconds: float | None
    ) -> AsyncGenerator[Event]:
        """Run a block as `execute` does, and yield its events."""
        builder, options = ResultBuilder(), await self._options(run, run_seconds)
        with self._active_run(run):
            async with contextlib.aclosing(
                self._served.stream(block, run.token, options)
            ) as events:
                async for event in events:
                    if isinstance(event, Ended):
                        self._check_cut(run)
                    builder.add_event(event)
                    yield event
        run.result = builder.session_result()

    async def command(self, settings: CommandSettings) -> AsyncGenerator[CommandItem]:
        """Run a command beside the interpreter. Raise `DiskQuotaExceeded`."""
        await self._disk_quota.remaining()
        async with contextlib.aclosing(self._served.command(settings)) as pieces:
            async for piece in pieces:
                yield piece

    async def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Call `work`: a checkpoint, restore or fork. Call it only while holding `lock`."""
        self.check_open()
        return await work()

    async def complete(self, code: str, cursor: int) -> tuple[int, list[str]]:
        """Return what Tab offers, and nothing after a short time. Call it while holding `lock`.

        It can run user code, such as `__dir__`. Raise `DiskQuotaExceeded`.
        """
        options = RunOptions(
            run_seconds=_COMPLETE_SECONDS, written_bytes=await self._disk_quota.remaining()
        )
        try:
            return await self._served.complete(code, cursor, options)
        except SessionError:  # it has reached a limit
            return cursor, []

    async def restart(self) -> None:
        """Delete the variables, for `call`."""
        rest = await self.uncounted_cpu_seconds()
        await self._served.restart()
        self._counted_cpu_seconds = -rest

    async def checkpoints(self) -> Sequence[Checkpoint]:
        """Return the checkpoints, oldest first."""
        return await self._served.checkpoints()

    async def checkpoint(
        self,
        name: str | None,
        *,
        lifetime_seconds: float | None = None,
        replace: bool = False,
        end_commands: bool = False,
    ) -> Checkpoint:
        """Make a checkpoint, for `call`. Raise `CheckpointError` if the disk quota is too small."""
        made = await self._served.checkpoint(
            name,
            lifetime_seconds=lifetime_seconds,
            replace=replace,
            end_commands=end_commands,
            max_copied_bytes=await self._room_for_copies(),
        )
        self.lineage.add(made.name)
        return made

    async def drop(self, checkpoint: str) -> None:
        """Delete a checkpoint, for `call`. Raise `CheckpointError`."""
        await self._served.drop(checkpoint)

    async def restore(self, checkpoint: str, *, end_commands: bool = False) -> None:
        """Go back to a checkpoint, for `call`. Raise `CheckpointError`."""
        await self._served.restore(checkpoint, end_commands=end_commands)
        self.lineage.current = checkpoint

    async def fork(self, checkpoint: str | None, *, end_commands: bool = False) -> ServedExecutor:
        """Return a copy, for `call`. Raise `CheckpointError` if the disk quota is too small."""
        return await self._served.fork(
            checkpoint, end_commands=end_commands, max_copied_bytes=await self._room_for_copies()
        )

    async def _room_for_copies(self) -> int | None:
        try:
            return await self._disk_quota.remaining()
        except DiskQuotaExceeded:
            return 1  # enough for what makes no copy

    async def _options(self, run: SessionRun, run_seconds: float | None) -> RunOptions:
        room = await self._disk_quota.remaining()
        options = replace(self._served.options, run_seconds=run_seconds, written_bytes=room)
        if run.terminal_mode is None:
            return options
        return replace(options, terminal_mode=run.terminal_mode, no_input=_NO_TERMINAL_INPUT)

    @contextlib.contextmanager
    def _active_run(self, run: SessionRun) -> Generator[None]:
        self.check_open()
        run.is_started, self._active = True, run
        try:
            yield
        except BackendError:
            self._check_cut(run)  # the folder of the session may be gone already
            raise
        finally:
            self._active = None

    def _check_cut(self, run: SessionRun) -> None:
        if self._cut is run:
            raise ExecutorStopped("The session was ended during the run.")


@contextlib.contextmanager
def translate_stop(session: HostedSession) -> Generator[None]:
    """Raise `SessionNotFound` if the session is ended during the context."""
    try:
        yield
    except ExecutorStopped as error:
        raise SessionNotFound(
            f"The session {session.identifier!r} ended during the run."
        ) from error
