"""Watch descriptors in a process that must not wait for any of them in particular."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable, Generator

FOREVER = float("inf")
_MAX_WAIT = 1e6  # seconds; poll takes milliseconds in 31 bits
_FAULT_DELAY = 0.01  # seconds


class PollLoop:
    """Calls the handlers of descriptors that are ready. A handler must not wait."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], None]] = {}

    def watch(
        self, descriptor: int, handler: Callable[[], None], events: int = select.POLLIN
    ) -> None:
        """Call `handler` at `events` of `descriptor`, and at its end, instead of what was before.

        The end is reported again and again: unwatch a descriptor for which nothing can be done.
        """
        self._poll.register(descriptor, events)
        self._handlers[descriptor] = handler

    def unwatch(self, descriptor: int) -> None:
        """Stop watching `descriptor`, before it is closed."""
        if self._handlers.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def run_once(self, deadline: float) -> None:
        """Wait for events until `deadline`, a time of `time.monotonic`, and call the handlers."""
        wait = None
        if deadline < FOREVER:
            wait = min(max(0.0, deadline - time.monotonic()), _MAX_WAIT) * 1000
        for descriptor, _ in self._poll.poll(wait):
            if (handler := self._handlers.get(descriptor)) is not None:
                with ignoring_faults():
                    handler()


@contextlib.contextmanager
def ignoring_faults() -> Generator[None]:
    """Ignore what the system refuses: events and times are reported until they are handled."""
    try:
        yield
    except (OSError, MemoryError):
        time.sleep(_FAULT_DELAY)
