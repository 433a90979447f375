"""Driver: run one coroutine on the thread that calls, with no more of an event loop than a block of code needs.

A loop of asyncio's own is made for many tasks that live long: to set it up for one call and turn it takes as long as the two
turns of threads that are spared by it.
"""

from __future__ import annotations

import asyncio
import heapq
import importlib
import logging
import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

_log = logging.getLogger(__name__)
# Without `signal`, which looks for the names of numbers: that takes a tenth of a millisecond for all of them.
_signals: Any = importlib.import_module("_signal")
_handler_of: Callable[[int], object] = _signals.getsignal
_SIGINT, _NUMBERS = int(signal.SIGINT), sorted(int(number) for number in signal.valid_signals())


def can_drive() -> bool:
    """Tell whether work can be driven on this thread.

    It has no loop that runs already, and there is no handler of a signal that could raise in the middle of what we do; that
    of an interrupt is replaced meanwhile.
    """
    if asyncio._get_running_loop() is not None:
        return False
    if not _is_main_thread():
        return True
    count = sum(
        map(callable, map(_handler_of, _NUMBERS))
    )  # of handlers; without a line of Python for each number
    return count == (_handler_of(_SIGINT) is signal.default_int_handler)


def drive(function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
    """Call `function`, run the coroutine that it gives, and give the result; only where `can_drive`.

    An interrupt (Ctrl-C) cancels it, and goes on up when its clean-up is done; a second one does not wait for that.
    """
    driver = Driver()
    is_interruptible = _is_main_thread() and _handler_of(_SIGINT) is signal.default_int_handler
    if is_interruptible:
        _signals.signal(_SIGINT, driver.interrupt)
    try:
        return driver.run(function(*arguments))
    finally:
        if is_interruptible:
            _signals.signal(_SIGINT, signal.default_int_handler)
        driver.close()
        if driver.interrupts:
            raise KeyboardInterrupt


def _is_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


class Driver(asyncio.AbstractEventLoop):
    """The event loop of one call: futures, readers, timers, and what other threads ask for. There are no tasks on it."""

    def __init__(self) -> None:
        self.interrupts = 0
        self._poll = select.poll()
        self._readers: dict[int, tuple[Callable[..., object], tuple[Any, ...]]] = {}
        self._ready = deque[asyncio.Handle]()
        self._timers: list[asyncio.TimerHandle] = []
        self._guard = threading.RLock()  # lest other threads ring when the bell is gone
        self._closed = False
        self._bell = os.eventfd(0, os.EFD_CLOEXEC)
        self.add_reader(self._bell, os.eventfd_read, self._bell)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Give the result of `work`."""
        asyncio._set_running_loop(self)
        noticed = 0
        try:
            awaited = work.send(None)
            while True:
                while awaited is not None and not awaited.done() and self.interrupts == noticed:
                    self._turn()
                if self.interrupts == noticed:
                    awaited = work.send(None)
                else:
                    noticed += 1
                    awaited = work.throw(
                        asyncio.CancelledError() if noticed == 1 else KeyboardInterrupt()
                    )
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            work.close()
            asyncio._set_running_loop(None)

    def interrupt(self, _number: int, _frame: FrameType | None) -> None:
        """Note an interrupt; the handler of its signal."""
        self.interrupts += 1
        os.eventfd_write(self._bell, 1)

    def _turn(self) -> None:
        """Wait until there is something to do, and do it."""
        if not self._ready:
            for descriptor, _ in self._poll.poll(self._patience()):
                if descriptor in self._readers:
                    callback, arguments = self._readers[descriptor]
                    callback(*arguments)
        while self._timers and self._timers[0].when() <= self.time():
            self._ready.append(heapq.heappop(self._timers))
        self._do_what_is_ready()

    def _do_what_is_ready(self) -> None:
        while self._ready:
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()

    def _patience(self) -> float | None:
        """Give the milliseconds until the next timer."""
        return max(0.0, self._timers[0].when() - self.time()) * 1000 if self._timers else None

    # what futures, and those who make them, ask of their loop

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """See `asyncio.AbstractEventLoop`."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """See `asyncio.AbstractEventLoop`."""
        with self._guard:
            if self._closed:
                raise RuntimeError("This call is over.")
            handle = self.call_soon(callback, *args, context=context)
            os.eventfd_write(self._bell, 1)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """See `asyncio.AbstractEventLoop`."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """See `asyncio.AbstractEventLoop`."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, timer)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A timer that is cancelled is passed over when its time comes."""

    def time(self) -> float:
        """See `asyncio.AbstractEventLoop`."""
        return time.monotonic()

    def create_future(self) -> asyncio.Future[Any]:
        """See `asyncio.AbstractEventLoop`."""
        return asyncio.Future(loop=self)

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:
        """See `asyncio.AbstractEventLoop`; `fd` is a number."""
        self._readers[fd] = (callback, args)
        self._poll.register(fd, select.POLLIN)

    def remove_reader(self, fd: Any) -> bool:
        """See `asyncio.AbstractEventLoop`."""
        if self._readers.pop(fd, None) is None:
            return False
        self._poll.unregister(fd)
        return True

    def get_debug(self) -> bool:
        """See `asyncio.AbstractEventLoop`."""
        return False

    def is_closed(self) -> bool:
        """See `asyncio.AbstractEventLoop`."""
        return self._closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """See `asyncio.AbstractEventLoop`."""
        _log.error("%s", context["message"], exc_info=context.get("exception"))

    def close(self) -> None:
        """See `asyncio.AbstractEventLoop`; what others have asked for until now is still done."""
        with self._guard:
            self._closed = True
        self._do_what_is_ready()
        os.close(self._bell)
