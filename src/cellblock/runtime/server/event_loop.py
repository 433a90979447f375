"""The loop of a server: who is called when something can be read, and who when his time has come."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import Protocol

FOREVER = float("inf")


class Tended(Protocol):
    """Who has things to do when nothing comes in."""

    def moment(self) -> float:
        """Give when `tend` must be called; of `time.monotonic`."""
        ...

    def tend(self) -> None:
        """Do what is due."""


class Loop:
    """Descriptors, with whom to call and whose they are; only whoever something came for is asked anew what is due when."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, tuple[Callable[[], None], Tended | None]] = {}
        self._moments: dict[Tended, float] = {}

    def watch(
        self, descriptor: int, handler: Callable[[], None], flags: int, owner: Tended | None
    ) -> None:
        """Have `handler` called when `descriptor` can be read."""
        self._watched[descriptor] = handler, owner
        self._epoll.register(descriptor, flags)

    def again(self, descriptor: int, flags: int) -> None:
        """Have an edge-triggered `descriptor` reported once more if it still holds something."""
        self._epoll.modify(descriptor, flags)

    def is_watched(self, descriptor: int) -> bool:
        """Tell whether somebody is called for `descriptor`."""
        return descriptor in self._watched

    def forget(self, descriptor: int, *, is_to_be_closed: bool = False) -> None:
        """Watch `descriptor` no more; where it is closed at once, the kernel need not be told."""
        if self._watched.pop(descriptor, None) and not is_to_be_closed:
            self._epoll.unregister(descriptor)

    def note(self, owner: Tended) -> None:
        """Ask `owner` when it has something to do; what was noted stays, or who is busy would put it off for ever."""
        moment = owner.moment()
        if moment < self._moments.get(owner, FOREVER):
            self._moments[owner] = moment

    def drop(self, owner: Tended) -> None:
        """Call `owner` no more."""
        self._moments.pop(owner, None)

    def turn(self) -> None:
        """Wait for something to do, and do it."""
        due = min(self._moments.values(), default=FOREVER)
        touched = set[Tended]()
        for descriptor, _ in self._epoll.poll(
            -1 if due == FOREVER else max(0.0, due - time.monotonic())
        ):
            handler, owner = self._watched.get(descriptor, (None, None))
            if handler is not None:
                handler()
            if owner is not None:
                touched.add(owner)
        for owner in touched:
            self.note(owner)
        if due < FOREVER and (now := time.monotonic()) >= due:
            self._tend(now)

    def _tend(self, now: float) -> None:
        for owner, moment in list(self._moments.items()):
            if now >= moment and self._moments.pop(owner, None) is not None:
                owner.tend()
                self.note(owner)
