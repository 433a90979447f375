"""RunQueue: bound the runs of a server, and share them fairly among the keys."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from ..owners import Owner
from ..refusals import Draining, TooManyRuns

_WEIGHT = 0.1  # of the newest run in the mean
_MAX_RETRY_SECONDS = 60


class CpuPlaces:
    """Bound the runs that need a CPU of their own further than the queue does: so many at once."""

    def __init__(self, count: int) -> None:
        self.free = count


class CpuPlace:
    """One of `places`, which a run gets with its turn and holds until `leave`.

    With `seconds`, it leaves its place after that time and continues: one that loops or sleeps
    must not hold up those that wait.
    """

    def __init__(self, places: CpuPlaces, seconds: float | None = None) -> None:
        self._places, self._seconds = places, seconds
        self._timer: asyncio.TimerHandle | None = None
        self._on_leave: Callable[[], object] | None = None

    @property
    def is_free(self) -> bool:
        """Whether the run can get it now."""
        return self._places.free > 0

    def enter(self, on_leave: Callable[[], object]) -> None:
        """Hold it, and call `on_leave` when it is free again."""
        self._places.free -= 1
        self._on_leave = on_leave
        if self._seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self.leave)

    def leave(self) -> None:
        """Leave it to the next run. Do nothing if that has happened."""
        if self._timer is not None:
            self._timer.cancel()
        on_leave, self._on_leave = self._on_leave, None
        if on_leave is not None:
            self._places.free += 1
            on_leave()


@dataclass(eq=False)
class _Turn:
    """A run that waits for its turn, and for `place` if it needs one."""

    owner: Owner
    place: CpuPlace | None
    begun: asyncio.Future[None]


class RunQueue:
    """A queue for each key. When a run ends, the keys take turns.

    max_running   runs of all keys at one time
    max_queued    runs of one key that may wait
    """

    def __init__(self, max_running: int, max_queued: int) -> None:
        self._max_running, self._max_queued = max_running, max_queued
        self._admitted = Counter[str]()  # runs of a key that wait or run
        self._running = Counter[str]()
        # The waiting runs of each key. The keys are in the order of their turns.
        self._waiting: dict[str, deque[_Turn]] = {}
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._is_closed = False
        self.mean_seconds = 0.0  # that a run takes, of the last ones

    @property
    def running_count(self) -> int:
        """How many runs are active."""
        return self._running.total()

    @property
    def waiting_count(self) -> int:
        """How many admitted runs have not started."""
        return self._admitted.total() - self._running.total()

    def admitted_of(self, owner: Owner) -> int:
        """Return how many runs of a key wait or run."""
        return self._admitted[owner.id]

    async def wait_until_empty(self) -> None:
        """Wait until no run is active or waits."""
        await self._is_empty.wait()

    def close(self) -> None:
        """Let no further run start: runs that wait raise `Draining`."""
        self._is_closed = True
        for queue in self._waiting.values():
            for turn in queue:
                if not turn.begun.done():
                    turn.begun.set_exception(_closed())

    @contextlib.asynccontextmanager
    async def admit(self, owner: Owner) -> AsyncGenerator[None]:
        """Admit a run for the time of the context. Raise `TooManyRuns` if the queue is full."""
        at_once = self._running_limit(owner)
        if (count := self._admitted[owner.id]) >= at_once + self._max_queued:
            raise TooManyRuns(
                f"This key already has {count} runs waiting or running. Try again when one of them "
                "has ended.",
                # About when half of its queue has had its turn.
                min(_MAX_RETRY_SECONDS, round(self.mean_seconds * count / at_once / 2)),
            )
        self._admitted[owner.id] += 1
        self._is_empty.clear()
        try:
            yield
        finally:
            _decrease(self._admitted, owner.id)
            if not self._admitted:
                self._is_empty.set()

    @contextlib.asynccontextmanager
    async def turn(self, owner: Owner, place: CpuPlace | None = None) -> AsyncGenerator[None]:
        """Wait until an admitted run may start. Its turn lasts for the time of the context.

        It also has `place` then, if that is given. Raise `Draining` if the queue is closed.
        """
        if self._is_closed:
            raise _closed()
        turn = _Turn(owner, place, asyncio.get_running_loop().create_future())
        if self.running_count < self._max_running and self._may_start(turn):
            self._start(turn)
        else:
            await self._wait(turn)
        started = time.monotonic()
        try:
            yield
        finally:
            self.mean_seconds += _WEIGHT * (time.monotonic() - started - self.mean_seconds)
            self._end(turn)

    async def _wait(self, turn: _Turn) -> None:
        self._waiting.setdefault(turn.owner.id, deque()).append(turn)
        begun = turn.begun
        try:
            await begun
        except asyncio.CancelledError:
            if begun.done() and not begun.cancelled() and begun.exception() is None:
                self._end(turn)  # its turn came at the same moment
            raise

    def _start(self, turn: _Turn) -> None:
        self._running[turn.owner.id] += 1
        if turn.place is not None:
            turn.place.enter(self._start_next)

    def _end(self, turn: _Turn) -> None:
        _decrease(self._running, turn.owner.id)
        if turn.place is not None:
            turn.place.leave()
        self._start_next()

    def _start_next(self) -> None:
        for key in list(self._waiting):
            if self.running_count >= self._max_running:
                return
            queue = self._waiting[key]
            while queue and queue[0].begun.done():  # cancelled
                queue.popleft()
            # One that needs a place holds up no other run of its key.
            turn = next((each for each in queue if self._may_start(each)), None)
            if turn is not None:
                queue.remove(turn)
                self._start(turn)
                turn.begun.set_result(None)
                self._waiting[key] = self._waiting.pop(key)  # the last one to have a turn again
            if not queue:
                del self._waiting[key]

    def _may_start(self, turn: _Turn) -> bool:
        if turn.begun.done() or (turn.place is not None and not turn.place.is_free):
            return False
        return self._running[turn.owner.id] < self._running_limit(turn.owner)

    def _running_limit(self, owner: Owner) -> int:
        quota = owner.quotas.running
        return self._max_running if quota is None else min(quota, self._max_running)


def _closed() -> Draining:
    return Draining("The server has stopped. Send the request again later.")


def _decrease(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
