"""A fair lock for tasks of any event loop and thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import deque

from .running_loop import running_loop

_CHECK_SECONDS = 0.5  # between two checks that the holder's loop is still open


class CrossLoopLock:
    """A lock that tasks of any event loop hold one at a time, in the order in which they asked.

    Use it as `async with lock.acquire():`. An `asyncio.Lock` serves only one loop. If the holder's
    loop is closed before the holder releases the lock, the next task gets it.
    """

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.holder: _Acquisition | None = None
        self.waiters = deque[_Acquisition]()

    def acquire(self) -> _Acquisition:
        """Return a context manager that holds the lock. Enter it immediately."""
        return _Acquisition(self)


class _Acquisition:
    """One task's request for the lock, and its hold on it."""

    def __init__(self, lock: CrossLoopLock) -> None:
        self._lock, self._loop = lock, running_loop()
        self._granted: concurrent.futures.Future[None] | None = None

    async def __aenter__(self) -> None:
        lock = self._lock
        with lock.mutex:
            if lock.holder is None or lock.holder._loop.is_closed():
                lock.holder = self
                return
            self._granted = concurrent.futures.Future()
            lock.waiters.append(self)
        try:
            granted = asyncio.wrap_future(self._granted)
            while not granted.done():
                await asyncio.wait([granted], timeout=_CHECK_SECONDS)
                self._release_closed_holder()
        except BaseException:
            if not self._granted.cancel():  # the lock was granted in the meantime
                self._release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._release()

    def _release_closed_holder(self) -> None:
        holder = self._lock.holder
        if holder is not None and holder._loop.is_closed():
            holder._release()

    def _release(self) -> None:
        lock = self._lock
        with lock.mutex:
            if lock.holder is not self:
                return  # the lock was already passed on, because our loop was closed
            lock.holder = None
            while lock.waiters and lock.holder is None:
                lock.holder = lock.waiters.popleft()._grant()

    def _grant(self) -> _Acquisition | None:
        """Pass the lock to this waiter. Return None if it no longer waits."""
        assert self._granted is not None
        if self._loop.is_closed() or not self._granted.set_running_or_notify_cancel():
            return None
        self._granted.set_result(None)
        return self
