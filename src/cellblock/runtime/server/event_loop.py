"""The event loop of the server: call handlers on readable descriptors, and timers when due."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable
from typing import Protocol

from .faults import OnFault, report_fault, run_contained

FOREVER = float("inf")
_MAX_WAIT = 1e6  # seconds; epoll takes milliseconds in 31 bits
_RETRY_DELAY = 0.01  # seconds until the next `epoll_wait` after a failed one


class TimerHandler(Protocol):
    """An object that has something to do at a certain time."""

    def next_deadline(self) -> float:
        """Return the `time.monotonic` at which `on_timer` must be called, or `FOREVER`."""
        ...

    def on_timer(self) -> None:
        """Do the work that is due."""
        ...

    def on_fault(self, error: Exception) -> None:
        """Handle what `on_timer` raised, or a handler without an `on_fault`."""
        ...


class EventLoop:
    """Watch descriptors with epoll, and call timers. What these raise does not end the loop.

    Each descriptor belongs to a timer. Only the timers whose descriptors had events are asked
    for a new deadline, so that the cost of an event does not grow with the number of clients.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, tuple[Callable[[], None], TimerHandler, OnFault]] = {}
        self._deadlines: dict[TimerHandler, float] = {}

    def register(
        self,
        descriptor: int,
        handler: Callable[[], None],
        flags: int,
        timer: TimerHandler,
        on_fault: OnFault | None = None,
    ) -> None:
        """Call `handler` whenever epoll reports `descriptor`, and `on_fault` if that raises."""
        self._epoll.register(descriptor, flags)
        self._handlers[descriptor] = handler, timer, on_fault or timer.on_fault

    def rearm(self, descriptor: int, flags: int) -> None:
        """Report an edge-triggered `descriptor` once more if it is still readable."""
        self._epoll.modify(descriptor, flags)

    def unregister(self, descriptor: int, *, closing: bool = False) -> None:
        """Stop watching `descriptor`. With `closing`, its close removes it from the epoll set."""
        if self._handlers.pop(descriptor, None) and not closing:
            with contextlib.suppress(OSError):
                self._epoll.unregister(descriptor)

    def update_deadline(self, timer: TimerHandler) -> None:
        """Ask `timer` for its deadline. An earlier one stays: events cannot postpone it forever."""
        deadline = timer.next_deadline()
        if deadline < self._deadlines.get(timer, FOREVER):
            self._deadlines[timer] = deadline

    def remove_timer(self, timer: TimerHandler) -> None:
        """Do not call `timer` again."""
        self._deadlines.pop(timer, None)

    def run_once(self) -> None:
        """Wait for events or the next deadline, and call their handlers."""
        due = min(self._deadlines.values(), default=FOREVER)
        touched = set[TimerHandler]()
        for descriptor in self._wait(due):
            if (found := self._handlers.get(descriptor)) is None:
                continue
            handler, timer, on_fault = found
            try:
                handler()
            except Exception as error:
                report_fault(error, on_fault)
            touched.add(timer)
        for timer in touched:
            self.update_deadline(timer)
        if due < FOREVER and (now := time.monotonic()) >= due:
            self._run_timers(now)

    def _wait(self, due: float) -> list[int]:
        """Return the descriptors that epoll reports until `due`."""
        seconds = -1 if due == FOREVER else min(max(0.0, due - time.monotonic()), _MAX_WAIT)
        try:
            return [descriptor for descriptor, _ in self._epoll.poll(seconds)]
        except (OSError, MemoryError):
            time.sleep(_RETRY_DELAY)
            return []

    def _run_timers(self, now: float) -> None:
        for timer, deadline in list(self._deadlines.items()):
            if now >= deadline and self._deadlines.pop(timer, None) is not None:
                run_contained(timer.on_timer, timer.on_fault)
                self.update_deadline(timer)
