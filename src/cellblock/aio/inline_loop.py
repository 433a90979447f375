"""A minimal event loop that runs one coroutine on the calling thread.

It supports only what running a block needs. Setting up an asyncio loop for one call takes as long
as the two thread switches that a call on the background loop costs.
"""

from __future__ import annotations

import asyncio
import heapq
import importlib
import logging
import os
import select
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

_log = logging.getLogger(__name__)
# `signal.getsignal` also converts results to enum members, which takes 0.1 ms for all signals.
_signals: Any = importlib.import_module("_signal")
_get_handler: Callable[[int], object] = _signals.getsignal
_SIGINT, _SIGNAL_NUMBERS = (
    int(signal.SIGINT),
    sorted(int(number) for number in signal.valid_signals()),
)


def can_use_inline_loop() -> bool:
    """Return True if `run_inline` may be used on this thread.

    Only Linux has what it needs. The thread must not run an event loop. On the main thread no
    signal may have a Python handler, because it could raise in the middle of our work. The default
    handler of SIGINT is allowed: `run_inline` replaces it.
    """
    if sys.platform != "linux" or asyncio._get_running_loop() is not None:
        return False
    if not _is_main_thread():
        return True
    # `sum` and `map` run no Python code per signal.
    handler_count = sum(map(callable, map(_get_handler, _SIGNAL_NUMBERS)))
    return handler_count == (_get_handler(_SIGINT) is signal.default_int_handler)


def run_inline(function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
    """Call the coroutine function `function` on this thread and return its result.

    Requires `can_use_inline_loop`. An interrupt (Ctrl-C) cancels the coroutine, and raises
    `KeyboardInterrupt` after its clean-up. A second interrupt raises it in the clean-up.
    """
    loop = InlineLoop()
    is_interruptible = _is_main_thread() and _get_handler(_SIGINT) is signal.default_int_handler
    if is_interruptible:
        _signals.signal(_SIGINT, loop.count_interrupt)
    try:
        return loop.run(function(*arguments))
    finally:
        if is_interruptible:
            _signals.signal(_SIGINT, signal.default_int_handler)
        loop.close()
        if loop.interrupt_count:
            raise KeyboardInterrupt


def _is_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


class InlineLoop(asyncio.AbstractEventLoop):
    """The event loop of one call: futures, readers, timers and calls from other threads.

    It does not support tasks.
    """

    def __init__(self) -> None:
        self.interrupt_count = 0
        self._poll = select.poll()
        self._readers: dict[int, tuple[Callable[..., object], tuple[Any, ...]]] = {}
        self._ready = deque[asyncio.Handle]()
        self._timers: list[asyncio.TimerHandle] = []
        self._close_lock = (
            threading.RLock()
        )  # so that no other thread writes to a closed descriptor
        self._closed = False
        self._wakeup = os.eventfd(0, os.EFD_CLOEXEC)
        self.add_reader(self._wakeup, os.eventfd_read, self._wakeup)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` and return its result."""
        asyncio._set_running_loop(self)
        handled_count = 0
        try:
            awaited = work.send(None)
            while True:
                while (
                    awaited is not None
                    and not awaited.done()
                    and self.interrupt_count == handled_count
                ):
                    self._run_once()
                if self.interrupt_count == handled_count:
                    awaited = work.send(None)
                else:
                    handled_count += 1
                    awaited = work.throw(
                        asyncio.CancelledError() if handled_count == 1 else KeyboardInterrupt()
                    )
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            work.close()
            asyncio._set_running_loop(None)

    def count_interrupt(self, _number: int, _frame: FrameType | None) -> None:
        """Count an interrupt and wake the loop. This is the handler of SIGINT."""
        self.interrupt_count += 1
        os.eventfd_write(self._wakeup, 1)

    def _run_once(self) -> None:
        """Wait for events and run their callbacks."""
        if not self._ready:
            for descriptor, _ in self._poll.poll(self._poll_milliseconds()):
                if descriptor in self._readers:
                    callback, arguments = self._readers[descriptor]
                    callback(*arguments)
        while self._timers and self._timers[0].when() <= self.time():
            self._ready.append(heapq.heappop(self._timers))
        self._run_ready()

    def _run_ready(self) -> None:
        while self._ready:
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()

    def _poll_milliseconds(self) -> float | None:
        """Return the time until the next timer; None if there is no timer."""
        return max(0.0, self._timers[0].when() - self.time()) * 1000 if self._timers else None

    # the interface that futures and their creators use

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
        with self._close_lock:
            if self._closed:
                raise RuntimeError("The inline loop is closed.")
            handle = self.call_soon(callback, *args, context=context)
            os.eventfd_write(self._wakeup, 1)
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
        """Do nothing: a cancelled timer is skipped when it is due."""

    def time(self) -> float:
        """See `asyncio.AbstractEventLoop`."""
        return time.monotonic()

    def create_future(self) -> asyncio.Future[Any]:
        """See `asyncio.AbstractEventLoop`."""
        return asyncio.Future(loop=self)

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:
        """See `asyncio.AbstractEventLoop`. `fd` must be a number."""
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
        """See `asyncio.AbstractEventLoop`. Callbacks that are ready still run."""
        with self._close_lock:
            self._closed = True
        self._run_ready()
        os.close(self._wakeup)
