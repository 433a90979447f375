"""LiveRun: a run that continues in a task, and the events that readers get from any point."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from dataclasses import dataclass

from ....blocks import CodeBlock
from ....cancellation import ABANDONED_GRACE
from ....events import Display, Ended, Event, Output, Started
from ....executors.frame_decoder import CANCELLED_TEXT, EXIT_CANCELLED
from ....results import ResultBuilder
from ...owners import Owner
from ...refusals import Draining
from ...sessions.fresh_runs import stream_fresh
from ...sessions.journal import Action
from ...sessions.session import HostedSession, SessionRun
from ...sessions.store import SessionStore
from .answers import ErrorDetail, RunInfo, RunResult, RunStatus, to_time

RESUME_SECONDS = 10.0  # for a client that lost its connection to continue reading
RETRY_SECONDS = 60.0  # for a client that can send its request again to do so
PING_SECONDS = 15.0  # silence after which a reader is sent something
_CANCEL_SECONDS = 10.0  # for a cancelled run to end
_MAX_MERGED = 1 << 16  # characters of one event
_EVENT_BYTES = 200  # of memory, besides its text


@dataclass(frozen=True)
class Failure:
    """The last event of a run that the server could not carry out."""

    error: Exception


@dataclass(frozen=True, kw_only=True)
class LiveRunSettings:
    """What a run is and where it happens. `session_id` is None for a fresh process.

    is_background   whether the run continues without readers
    key             the client's own name of the run, with which it may ask for it again
    """

    block: CodeBlock
    session_id: str | None = None
    run_seconds: float | None = None
    is_background: bool = False
    key: str | None = None


class LiveRun:
    """A run, from its start until it is forgotten. `events` end with `Ended` or `Failure`."""

    def __init__(self, store: SessionStore, owner: Owner, settings: LiveRunSettings) -> None:
        self.owner, self.settings = owner, settings
        self.run = SessionRun(
            language=settings.block.language, is_asynchronous=settings.is_background
        )
        self.created_at = time.time()
        self.events = list[Event | Failure]()
        self._store = store
        self._admitted = asyncio.Event()  # or ended before that
        self._changed = asyncio.Event()
        self._readers = 0
        self._timer: asyncio.TimerHandle | None = None
        self._task = asyncio.ensure_future(self._work())

    @property
    def is_done(self) -> bool:
        """Whether the last event is there."""
        return bool(self.events) and isinstance(self.events[-1], Ended | Failure)

    @property
    def error(self) -> Exception | None:
        """Why the server could not carry out the run; None if it could."""
        last = self.events[-1] if self.events else None
        return last.error if isinstance(last, Failure) else None

    @property
    def size_bytes(self) -> int:
        """About how much memory the events and the result use."""
        return sum(map(_size, self.events))

    def info(self) -> RunInfo:
        """Return what clients are told about the run."""
        result, error = self.run.result, self.error
        return RunInfo(
            id=self.run.id,
            session_id=self.settings.session_id,
            status=self._status(),
            language=self.run.language,
            created_at=to_time(self.created_at),
            queue_seconds=self.run.queue_seconds,
            result=RunResult.of(result) if result is not None and self.is_done else None,
            error=None if error is None else ErrorDetail.of(error),
        )

    def _status(self) -> RunStatus:
        if self.is_done:
            return "ended" if self.error is None else "failed"
        return "running" if self.run.is_started else "queued"

    # what requests do

    def add_done_callback(self, callback: Callable[[LiveRun], None]) -> None:
        """Call `callback` with this run when it has ended."""
        self._task.add_done_callback(lambda _task: callback(self))

    async def wait(self) -> None:
        """Wait until the run has ended. Cancelling this does not cancel the run."""
        await asyncio.wait({self._task})

    def check(self) -> None:
        """Raise what prevented the run, if it failed."""
        if (error := self.error) is not None:
            raise error

    async def wait_until_admitted(self) -> None:
        """Wait until the run has its place in the queue. Raise what prevented it."""
        await self._admitted.wait()
        self.check()

    def cancel(self) -> None:
        """End the run, also if it is still in the queue. Do nothing if it has ended.

        Its code may end a call of native code first. A second `cancel` kills it.
        """
        if self.is_done:
            return
        self.run.token.cancel()
        if not self.run.is_started:
            self._task.cancel()

    async def cancel_and_wait(self) -> None:
        """End the run as `cancel` does, and wait for its end, but not for long."""
        self.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self.wait()

    def abandon(self) -> None:
        """End the run because its client has gone, and cannot cancel it a second time."""
        self.cancel()
        if not self.is_done:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(ABANDONED_GRACE, self.cancel)

    @contextlib.contextmanager
    def reading(self) -> Generator[None]:
        """Keep the run going during the context, and for some time after it."""
        self._readers += 1
        if self._timer is not None:
            self._timer.cancel()
        try:
            yield
        finally:
            self._readers -= 1
            if not self._readers and not self.is_done and not self.settings.is_background:
                loop = asyncio.get_running_loop()
                seconds = RESUME_SECONDS if self.settings.key is None else RETRY_SECONDS
                self._timer = loop.call_later(seconds, self.abandon)

    async def read(self, after: int) -> AsyncGenerator[tuple[int, Event | Failure] | None]:
        """Yield the events after number `after` as they happen, each with its number.

        Output that is already there is merged, under the number of its last event. Yield None
        after `PING_SECONDS` of silence.
        """
        position = after
        while True:
            changed = self._changed
            while position < len(self.events):
                position, event = _merge(self.events, position)
                yield position, event
            if self.is_done:
                return
            try:
                async with asyncio.timeout(PING_SECONDS):
                    await changed.wait()
            except TimeoutError:
                yield None

    # the task

    async def _work(self) -> None:
        try:
            last: Event | Failure = await self._stream_events()
        except asyncio.CancelledError:
            last = self._end_cancelled()
        except Exception as error:  # the requests that wait for the run answer it
            last = Failure(error)
        if self._timer is not None:
            self._timer.cancel()
        self._add_event(last)
        self._admitted.set()

    async def _stream_events(self) -> Ended:
        ended: Ended | None = None
        identifier = self.settings.session_id
        events = self._fresh_events() if identifier is None else self._session_events(identifier)
        async with contextlib.aclosing(events):
            async for event in events:
                if isinstance(event, Ended):
                    ended = event
                else:
                    self._add_event(event)
        assert ended is not None, "executors yield Ended last"
        return ended

    def _fresh_events(self) -> AsyncGenerator[Event]:
        return stream_fresh(
            self._store,
            self.owner,
            self.settings.block,
            run=self.run,
            run_seconds=self.settings.run_seconds,
            on_admitted=self._admitted.set,
        )

    async def _session_events(self, identifier: str) -> AsyncGenerator[Event]:
        async with use_existing(self._store, self.owner, identifier) as session:
            events = self._store.stream(
                self.owner,
                session,
                self.settings.block,
                run=self.run,
                run_seconds=self.settings.run_seconds,
                on_admitted=self._admitted.set,
            )
            async with contextlib.aclosing(events):
                async for event in events:
                    yield event

    def _end_cancelled(self) -> Event | Failure:
        """Return the end of a run that was cancelled in the queue, or by the end of the server."""
        if not self.run.token.is_cancelled():
            return Failure(Draining("The server has stopped."))
        ended = Ended(0, EXIT_CANCELLED, "cancelled", message=CANCELLED_TEXT)
        builder = ResultBuilder()
        builder.add_event(Started(0, self.run.language))
        builder.add_event(ended)
        self.run.result = builder.session_result()
        return ended

    def _add_event(self, event: Event | Failure) -> None:
        self.events.append(event)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


@contextlib.asynccontextmanager
async def use_existing(
    store: SessionStore, owner: Owner, identifier: str, action: Action | None = None
) -> AsyncGenerator[HostedSession]:
    """Yield a session as `store.use` does, but raise `SessionNotFound` if there is none."""
    store.find(owner, identifier)
    async with store.use(owner, identifier, action) as session:
        yield session


def _merge(events: Sequence[Event | Failure], start: int) -> tuple[int, Event | Failure]:
    """Return the event at index `start` with the output that follows it, and the next index."""
    first, end = events[start], start + 1
    if not isinstance(first, Output):
        return end, first
    texts, size = [first.text], len(first.text)
    while end < len(events) and size < _MAX_MERGED:
        event = events[end]
        if not isinstance(event, Output) or event.stream != first.stream:
            break
        texts.append(event.text)
        size, end = size + len(event.text), end + 1
    return end, Output(first.block, first.stream, "".join(texts))


def _size(event: Event | Failure) -> int:
    match event:
        case Output(text=text):
            return _EVENT_BYTES + 3 * len(text)  # in the event, the output and one of the streams
        case Display(data=data):
            values = (len(value) if isinstance(value, str) else 1000 for value in data.values())
            return _EVENT_BYTES + sum(values)
        case _:
            return _EVENT_BYTES
