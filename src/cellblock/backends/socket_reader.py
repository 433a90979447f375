"""Ear: hear what comes on a socket, on one event loop at a time."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable


class Ear:
    """Calls `on_readable` when something has come: on the loop that `listen` was last called on, whichever that is.

    A loop from which the ear has moved on is never waited for: it may be busy, or have ended. It lets go when it has time.
    So each loop watches a descriptor of its own, which is the same stream.
    """

    def __init__(self, stream: socket.socket, on_readable: Callable[[], None]) -> None:
        self._stream, self._on_readable = stream, on_readable
        self._guard = threading.RLock()
        self._watches = set[_Watch]()
        self._current: _Watch | None = None
        self._over = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop on which is heard what comes, if on any."""
        return self._current.loop if self._current is not None else None

    def listen(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Hear on `loop`, the one that calls, from now on; tell whether that can be: not all loops watch sockets."""
        with self._guard:
            if self.loop is loop:
                return True
            if self._over:
                return False
            watch = _Watch(loop, self._stream)
            try:
                loop.add_reader(watch.descriptor, self._hear, watch)
            except NotImplementedError:
                watch.close()
                return False
            self.rest()
            self._watches.add(watch)
            self._current = watch
            return True

    def _hear(self, watch: _Watch) -> None:
        with self._guard:
            if watch is self._current:
                self._on_readable()
            else:
                self._let_go(watch)

    def end(self) -> None:
        """Hear nothing any more."""
        with self._guard:
            self._over = True
            self.rest()

    def rest(self) -> None:
        """Hear nothing until the next `listen`."""
        with self._guard:
            watch, self._current = self._current, None
            for other in [
                other for other in self._watches if other is not watch and other.loop.is_closed()
            ]:
                self._drop(other)  # it ended before it had time to let go
        if watch is None:
            return
        try:
            watch.loop.call_soon_threadsafe(self._let_go, watch)
        except RuntimeError:  # the loop is closed, and watches nothing
            self._drop(watch)

    def _let_go(self, watch: _Watch) -> None:
        if watch in self._watches:
            watch.loop.remove_reader(watch.descriptor)
            self._drop(watch)

    def _drop(self, watch: _Watch) -> None:
        self._watches.discard(watch)
        watch.close()

    def forget(self) -> None:
        """In a forked child: close all that is the parent's."""
        for watch in self._watches:
            watch.close()


class _Watch:
    """One loop's own descriptor of the stream."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stream: socket.socket) -> None:
        self.loop, self.descriptor = loop, os.dup(stream.fileno())

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
