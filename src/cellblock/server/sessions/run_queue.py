"""RunQueue: bound the runs of a server, and share them fairly among the keys."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator

from ..owners import Owner
from ..refusals import Draining, TooManyRuns

_WEIGHT = 0.1  # of the newest run in the mean
_MAX_RETRY_SECONDS = 60


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
        self._waiting: dict[str, deque[tuple[Owner, asyncio.Future[None]]]] = {}
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
            for _, future in queue:
                if not future.done():
                    future.set_exception(_closed())

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
    async def turn(self, owner: Owner) -> AsyncGenerator[None]:
        """Wait until an admitted run may start, and hold its place for the time of the context.

        Raise `Draining` if the queue is closed.
        """
        if self._is_closed:
            raise _closed()
        if self.running_count < self._max_running and self._may_start(owner):
            self._running[owner.id] += 1
        else:
            await self._wait(owner)
        started = time.monotonic()
        try:
            yield
        finally:
            self.mean_seconds += _WEIGHT * (time.monotonic() - started - self.mean_seconds)
            _decrease(self._running, owner.id)
            self._start_next()

    async def _wait(self, owner: Owner) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner.id, deque()).append((owner, future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                # Its turn came at the same moment.
                _decrease(self._running, owner.id)
                self._start_next()
            raise

    def _start_next(self) -> None:
        for key in list(self._waiting):
            if self.running_count >= self._max_running:
                return
            queue = self._waiting[key]
            while queue and queue[0][1].done():  # cancelled
                queue.popleft()
            if queue and self._may_start(queue[0][0]):
                _, future = queue.popleft()
                self._running[key] += 1
                future.set_result(None)
                self._waiting[key] = self._waiting.pop(key)  # the last one to have a turn again
            if not queue:
                del self._waiting[key]

    def _may_start(self, owner: Owner) -> bool:
        return self._running[owner.id] < self._running_limit(owner)

    def _running_limit(self, owner: Owner) -> int:
        quota = owner.quotas.running
        return self._max_running if quota is None else min(quota, self._max_running)


def _closed() -> Draining:
    return Draining("The server has stopped. Send the request again later.")


def _decrease(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
