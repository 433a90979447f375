"""SessionStore: the sessions of a server by owner and identifier. All doors use it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from dataclasses import replace
from typing import Self, TypeVar
from uuid import uuid4

from ...aio.shielded import end_by_token
from ...blocks import CodeBlock
from ...errors import BackendError, BackendLost, ExecutorStopped
from ...events import Ended, Event
from ...results import CodeResult
from ..owners import Owner
from ..refusals import Draining, Refusal, SessionNotFound, TooManySessions
from ..settings import ServedSettings
from .background import BackgroundRuns
from .disk_quota import DiskQuota
from .executors import ServedExecutor, SessionFactory, Work
from .factory import local_factory
from .journal import Action, NoJournal, ServerJournal, recorded, recorded_action, session_record
from .run_queue import RunQueue
from .session import HostedSession, SessionRun, translate_stop

T = TypeVar("T")
MakeExecutor = Callable[[Owner], Awaitable[ServedExecutor]]
_log = logging.getLogger(__name__)


class SessionStore:
    """The sessions of a server. Use it with `async with`; leaving ends all sessions.

    Belongs to one event loop. A session is found only by the owner that made it.

    `on_run_end` is called with each run that had its turn. Its result is None if its client went
    away or its session was lost. `on_session_lost` is called when a request finds that.

    `factory` makes the sessions; None means on this machine.
    """

    def __init__(
        self,
        settings: ServedSettings,
        journal: ServerJournal | None = None,
        factory: SessionFactory | None = None,
    ) -> None:
        self.settings = settings
        self.queue = RunQueue(settings.max_running, settings.max_queued)
        self.on_run_end: Callable[[SessionRun], object] = lambda run: None
        self.on_session_lost: Callable[[], object] = lambda: None
        self.journal = journal or NoJournal()
        self.factory = factory or local_factory(settings)
        self._sessions: dict[tuple[str, str], HostedSession] = {}
        self._timers: dict[HostedSession, asyncio.TimerHandle] = {}
        # The sessions that are made, and the uploads that are checked, of each owner.
        self._making = defaultdict[str, asyncio.Lock](asyncio.Lock)
        self._uploading = defaultdict[str, asyncio.Lock](asyncio.Lock)
        self._closing = set[asyncio.Task[None]]()
        self._background = BackgroundRuns()
        self._is_draining = self._has_ended = False

    async def __aenter__(self) -> Self:
        await self.factory.__aenter__()
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.end_runs()
        self._background.cancel()
        if self._closing:
            await asyncio.wait(self._closing)
        await self.factory.__aexit__(None, None, None)

    def drain(self) -> None:
        """Accept no new sessions and runs from now on."""
        self._is_draining = True

    def end_runs(self) -> None:
        """End all sessions. Their runs, and those that wait, raise `Draining`."""
        self._is_draining = self._has_ended = True
        self.queue.close()
        for session in list(self._sessions.values()):
            self._discard(session, "stopped")

    @property
    def is_draining(self) -> bool:
        """Whether the server is about to stop."""
        return self._is_draining

    @property
    def session_count(self) -> int:
        """How many sessions of all owners exist."""
        return len(self._sessions)

    # sessions

    def sessions_of(self, owner: Owner) -> list[HostedSession]:
        """Return the sessions of an owner, oldest first, without those for fresh processes."""
        return [
            session
            for (key, _), session in self._sessions.items()
            if key == owner.id and session.is_live
        ]

    def find(self, owner: Owner, identifier: str) -> HostedSession:
        """Return a session. Raise `SessionNotFound` if the owner has none with this identifier."""
        session = self._sessions.get((owner.id, identifier))
        if session is None:
            raise SessionNotFound(f"There is no session {identifier!r}.", identifier)
        return session

    def expires_at(self, session: HostedSession) -> float:
        """Return when a session ends if it is not used, in seconds since 1970."""
        return self._expires_at(session.last_used_at, session.created_at)

    def _expires_at(self, last_used_at: float, created_at: float) -> float:
        idle_end = last_used_at + self.settings.idle_seconds
        max_age = self.settings.max_age_seconds
        return idle_end if max_age is None else min(idle_end, created_at + max_age)

    @contextlib.asynccontextmanager
    async def use(
        self, owner: Owner, identifier: str, action: Action | None = None
    ) -> AsyncGenerator[HostedSession]:
        """Yield an open session, made on first use. It does not expire during the context.

        Raise `TooManySessions`, `SessionElsewhere`, `Draining`, `PolicyNotSupported`, and what
        starting an executor raises. `action` is what the context does, for the audit log.
        """
        if (session := self._sessions.get((owner.id, identifier))) is None:
            session = await self._find_or_make(owner, identifier)
        async with self._using(session):
            with recorded_action(self.journal, owner, session, action):
                yield session

    @contextlib.asynccontextmanager
    async def _using(self, session: HostedSession) -> AsyncGenerator[None]:
        session.users += 1
        if (timer := self._timers.pop(session, None)) is not None:
            timer.cancel()
        try:
            await self._open(session)
            yield
        except (BackendError, ExecutorStopped, SessionNotFound) as error:
            is_lost = isinstance(error, BackendLost)
            if is_lost:
                _log.warning("The session %s was lost: %s", session.id, error)
                if not session.is_closed:
                    self.on_session_lost()
                self._discard(session, "lost")
            if self._has_ended:
                raise Draining("The server has stopped. Send the request again later.") from error
            if is_lost:
                raise session.lost_error() from error
            raise
        finally:
            session.users -= 1
            session.last_used_at = time.time()
            self._set_timer(session)

    @contextlib.asynccontextmanager
    async def use_temporary(
        self, owner: Owner, make: MakeExecutor | None = None
    ) -> AsyncGenerator[HostedSession]:
        """Yield a new session that ends with the context. Raises as `use` does.

        `make` makes its executor.
        """
        self.check_room(owner)
        await self.journal.check_sessions(owner, self._count(owner))
        executor = await (make or self.factory.make)(owner)
        await self._check_room_for(owner, executor)
        session = self.add(owner, f"temporary-{uuid4()}", executor)
        try:
            async with self._using(session):
                yield session
        finally:
            if not session.is_closed:
                self._discard(session, "deleted")

    async def close_session(self, owner: Owner, identifier: str) -> None:
        """End a session and remove its files. Raise `SessionNotFound`."""
        session = self.find(owner, identifier)
        await asyncio.shield(self._discard(session, "deleted", owner))

    @contextlib.asynccontextmanager
    async def reserve(self, owner: Owner, identifier: str) -> AsyncGenerator[str]:
        """Yield the ID for a session to add, which other servers know until it ends.

        Raise `TooManySessions`, `SessionElsewhere` and `Draining`.
        """
        self.check_room(owner)
        session_id, now = str(uuid4()), time.time()
        await self.journal.reserve(
            owner, session_id, identifier, self._count(owner), self._expires_at(now, now)
        )
        try:
            yield session_id
        finally:
            session = self._sessions.get((owner.id, identifier))
            if session is None or session.id != session_id:
                self.journal.release(session_id, "failed")

    async def _find_or_make(self, owner: Owner, identifier: str) -> HostedSession:
        async with self._making[owner.id]:  # concurrent requests may name the same session
            if (session := self._sessions.get((owner.id, identifier))) is not None:
                return session
            async with self.reserve(owner, identifier) as session_id:
                executor = await self.factory.make(owner)
                if (session := self._sessions.get((owner.id, identifier))) is not None:
                    await self.factory.release(executor, is_idle=True)
                    return session  # a fork
                await self._check_room_for(owner, executor)
                return self.add(owner, identifier, executor, session_id)

    async def _check_room_for(self, owner: Owner, executor: ServedExecutor) -> None:
        """Check the room again after its executor was made, which is released without room."""
        try:
            self.check_room(owner)
        except Refusal:
            await self.factory.release(executor, is_idle=True)
            raise

    def add(
        self, owner: Owner, identifier: str, executor: ServedExecutor, session_id: str | None = None
    ) -> HostedSession:
        """Add a session under an identifier, which must be free. `use` then sets its expiry.

        `session_id` is that of `reserve`.
        """
        quota = DiskQuota(
            owner.quotas.disk_bytes, lambda: self._disk_bytes(owner), self._uploading[owner.id]
        )
        session = HostedSession(owner, identifier, executor, self.factory, quota, session_id)
        self._sessions[owner.id, identifier] = session
        if session.is_registered:
            self.journal.add_session(session_record("session.start", owner, session, "ok"))
        return session

    async def _disk_bytes(self, owner: Owner) -> int:
        return await self.factory.disk_bytes(
            [each.served for (key, _), each in self._sessions.items() if key == owner.id]
        )

    def check_draining(self) -> None:
        """Raise `Draining` if the server accepts nothing new."""
        if self._is_draining:
            raise Draining("The server is about to stop. Send the request again later.")

    def check_room(self, owner: Owner) -> None:
        """Raise `TooManySessions` or `Draining` if the owner can have no further session."""
        self.check_draining()
        owner.check_session_quota(self._count(owner))
        if len(self._sessions) >= self.settings.max_sessions:
            raise TooManySessions(
                f"The server already has {self.settings.max_sessions} sessions. End one, or wait "
                "until one expires."
            )

    def _count(self, owner: Owner) -> int:
        return sum(key == owner.id for key, _ in self._sessions)

    async def _open(self, session: HostedSession) -> None:
        try:
            await session.open()
        except SessionNotFound:
            raise
        except Exception:  # after a cancellation, the next request opens it
            self._discard(session, "failed")
            raise

    def _set_timer(self, session: HostedSession) -> None:
        if session.users or session.is_closed:
            return
        expires_at = self.expires_at(session)
        if session.is_registered:
            self.journal.use(session.id, expires_at)
        delay, loop = max(0.0, expires_at - time.time()), asyncio.get_running_loop()
        self._timers[session] = loop.call_later(delay, self._discard, session, "expired")

    def _discard(
        self, session: HostedSession, ending: str, owner: Owner | None = None
    ) -> asyncio.Task[None]:
        """Forget a session immediately, and end it in a task. `owner` is the one who asked."""
        key = session.owner.id, session.identifier
        if self._sessions.get(key) is session:
            del self._sessions[key]
            if session.is_registered:
                owner = owner or replace(session.owner, door="server")
                self.journal.release(session.id, ending)
                self.journal.add_session(session_record("session.end", owner, session, ending))
        if (timer := self._timers.pop(session, None)) is not None:
            timer.cancel()
        session.is_closed = True
        task = asyncio.ensure_future(self._close(session))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    async def _close(self, session: HostedSession) -> None:
        try:
            try:
                await self._count_rest(session)
            finally:
                await session.close()
        except Exception:
            _log.exception("The session %s could not be ended completely", session.id)

    # runs

    async def run(
        self,
        owner: Owner,
        session: HostedSession,
        block: CodeBlock,
        *,
        run: SessionRun | None = None,
        run_seconds: float | None = None,
        on_admitted: Callable[[], object] = lambda: None,
    ) -> CodeResult:
        """Run a block in a session of `use`, when it is its turn, and return its result.

        `run` is what other requests see of it. `run_seconds` can only shorten the time limit.
        `on_admitted` is called when the run has its place in the queue.
        Cancel its token, or this task, to end it. Raise `TooManyRuns`, `DiskQuotaExceeded`,
        `SessionNotFound` if the session ends meanwhile, and what executors raise.
        """
        run = run or SessionRun()
        async with self.turn(owner, session, run, on_admitted):
            return await self.execute(owner, session, run, block, run_seconds)

    async def execute(
        self,
        owner: Owner,
        session: HostedSession,
        run: SessionRun,
        work: Work,
        run_seconds: float | None,
    ) -> CodeResult:
        """Run a block or program in its turn, and count it. See `HostedSession.execute`.

        If this task is cancelled, what the run has used until then is counted, too.
        """

        async def counted() -> CodeResult:
            result = await session.execute(run, work, run_seconds)
            self.count(owner, run, result.usage.cpu_seconds, result.outcome)
            return result

        return await end_by_token(counted(), run.token)

    async def run_in(
        self,
        owner: Owner,
        identifier: str,
        block: CodeBlock,
        run: SessionRun | None = None,
        run_seconds: float | None = None,
    ) -> CodeResult:
        """Run a block in the session `identifier`, made on first use. See `use` and `run`."""
        async with self.use(owner, identifier) as session:
            return await self.run(owner, session, block, run=run, run_seconds=run_seconds)

    async def start_run(
        self,
        owner: Owner,
        identifier: str,
        block: CodeBlock,
        run: SessionRun,
        run_seconds: float | None = None,
    ) -> None:
        """Start a run in the background, with its session open. Raises as `use` and `run` do.

        What `run` raises later is the run's `failure`.
        """

        async def work(on_admitted: Callable[[], object]) -> None:
            async with self.use(owner, identifier) as session:
                await self.run(
                    owner, session, block,
                    run=run, run_seconds=run_seconds, on_admitted=on_admitted,
                )  # fmt: skip

        await self._background.start(run, work)

    async def stream(
        self,
        owner: Owner,
        session: HostedSession,
        block: CodeBlock,
        *,
        run: SessionRun | None = None,
        run_seconds: float | None = None,
        on_admitted: Callable[[], object] = lambda: None,
    ) -> AsyncGenerator[Event]:
        """Run a block as `run` does, and yield its events as they happen."""
        run = run or SessionRun()
        async with self.turn(owner, session, run, on_admitted):
            events = self.count_events(owner, run, session.stream(run, block, run_seconds))
            async with contextlib.aclosing(events):
                async for event in events:
                    yield event

    async def count_events(
        self, owner: Owner, run: SessionRun, events: AsyncGenerator[Event]
    ) -> AsyncGenerator[Event]:
        """Yield the events of a run, and count what its results have used."""
        async with contextlib.aclosing(events):
            async for event in events:
                if isinstance(event, Ended):
                    self.count(owner, run, event.usage.cpu_seconds, event.outcome)
                yield event

    async def call(self, session: HostedSession, work: Callable[[], Awaitable[T]]) -> T:
        """Call `work` while no run is active in the session: checkpoints, restores, forks."""
        async with session.lock:
            return await session.call(work)

    async def complete(
        self, owner: Owner, session: HostedSession, code: str, cursor: int
    ) -> tuple[int, list[str]]:
        """Return what Tab offers at `cursor`, as a run that is not recorded. Raises as `run` does.

        While the session is in use, that is nothing.
        """
        self.check_draining()
        await self.journal.check(owner)
        with translate_stop(session):
            async with self.queue.admit(owner), self.queue.turn(owner):
                if session.lock.locked():
                    return cursor, []
                async with session.lock:
                    session.check_open()
                    found = await session.complete(code, cursor)
                    if owner.quotas.cpu_seconds_a_day is not None:
                        await self._count_rest(session)
                    return found

    @contextlib.asynccontextmanager
    async def turn(
        self,
        owner: Owner,
        session: HostedSession,
        run: SessionRun,
        on_admitted: Callable[[], object] = lambda: None,
        *,
        uses_interpreter: bool = True,
    ) -> AsyncGenerator[None]:
        """Wait for a turn, and hold it for the time of the context. Raises as `run` does.

        What `uses_interpreter` of the session has it to itself.
        """
        self.check_draining()
        await self.journal.check(owner)
        queued_at = time.monotonic()
        with translate_stop(session), run.lasting():
            async with self.queue.admit(owner):
                if uses_interpreter:
                    session.add_run(run)
                on_admitted()
                lock = session.lock if uses_interpreter else contextlib.nullcontext()
                async with lock, self.queue.turn(owner):
                    run.queue_seconds = time.monotonic() - queued_at
                    try:
                        with self.recorded(owner, session, run):
                            yield
                    finally:
                        session.count_run(run)
                    if owner.quotas.cpu_seconds_a_day is not None:
                        await self._count_rest(session)

    @contextlib.contextmanager
    def recorded(self, owner: Owner, session: HostedSession, run: SessionRun) -> Generator[None]:
        """Record a run that takes the time of the context, and report its end."""
        try:
            with recorded(self.journal, owner, session, run):
                yield
        finally:
            self.on_run_end(run)

    async def _count_rest(self, session: HostedSession) -> None:
        """Count what a session has used besides its results."""
        with contextlib.suppress(BackendError):  # it was lost
            self.journal.add_cpu_seconds(session.owner, await session.uncounted_cpu_seconds())

    def count(self, owner: Owner, run: SessionRun, cpu_seconds: float, outcome: str) -> None:
        """Add a result to what is known of a run, and its CPU seconds to those of its key."""
        run.outcome, run.cpu_seconds = outcome, run.cpu_seconds + cpu_seconds
        self.journal.add_cpu_seconds(owner, cpu_seconds)
