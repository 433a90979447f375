"""Read a socket on one event loop at a time, where the loop can change."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import weakref
from collections.abc import Callable, Iterable


class SocketReader:
    """Calls `on_readable` on the loop of the last `read_on` when the socket has data.

    A previous loop may be busy or closed, so nothing waits for it to stop watching the socket; it
    does so when it has time. Therefore each loop watches its own duplicate of the descriptor.
    """

    def __init__(self, stream: socket.socket, on_readable: Callable[[], None]) -> None:
        self._stream, self._on_readable = stream, on_readable
        self._lock = threading.RLock()
        self._watches = set[_Watch]()
        self._current: _Watch | None = None
        self._stopped = False
        # For objects that are garbage-collected without `stop`: then all their loops are closed.
        weakref.finalize(self, _close_all, self._watches).atexit = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop that reads the socket; None while reading is paused or stopped."""
        return self._current.loop if self._current is not None else None

    def read_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Read on `loop`, the running loop, from now on.

        Return False if the reader is stopped or the loop cannot watch sockets.
        """
        with self._lock:
            if self.loop is loop:
                return True
            if self._stopped:
                return False
            watch = _Watch(loop, self._stream)
            try:
                loop.add_reader(watch.descriptor, self._on_event, watch)
            except NotImplementedError:
                watch.close()
                return False
            self.pause()
            self._watches.add(watch)
            self._current = watch
            return True

    def _on_event(self, watch: _Watch) -> None:
        with self._lock:
            if watch is self._current:
                self._on_readable()
            else:
                self._remove_watch(watch)

    def stop(self) -> None:
        """Stop reading for good."""
        with self._lock:
            self._stopped = True
            self.pause()

    def pause(self) -> None:
        """Stop reading until the next `read_on`."""
        with self._lock:
            watch, self._current = self._current, None
            for other in list(self._watches):
                if other is not watch and other.loop.is_closed():
                    self._close_watch(other)  # its loop was closed before it could remove the watch
        if watch is None:
            return
        try:
            watch.loop.call_soon_threadsafe(self._remove_watch, watch)
        except RuntimeError:  # the loop is closed and watches nothing
            self._close_watch(watch)

    def _remove_watch(self, watch: _Watch) -> None:
        if watch in self._watches:
            watch.loop.remove_reader(watch.descriptor)
            self._close_watch(watch)

    def _close_watch(self, watch: _Watch) -> None:
        self._watches.discard(watch)
        watch.close()

    def close_in_child(self) -> None:
        """Close the parent's descriptors in a forked child."""
        for watch in self._watches:
            watch.close()


class _Watch:
    """One loop's own duplicate of the socket's descriptor."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stream: socket.socket) -> None:
        self.loop, self.descriptor = loop, os.dup(stream.fileno())

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _close_all(watches: Iterable[_Watch]) -> None:
    for watch in watches:
        watch.close()
