"""The server's end of a control stream to one process in a cell.

Frames go in both directions, descriptors into the cell. No call blocks.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from collections import deque
from collections.abc import Callable

from ... import protocol
from ...linux.credentials import CREDENTIALS_SPACE, enable_credentials, sender_pid
from ...linux.known_process import KnownProcess
from ...linux.retry import receive
from ..interfaces import EventSource

_MAX_FAILURES = 100  # to send something, in a row
_READ_SIZE = 1 << 16  # bytes; a larger buffer would be returned to the kernel after each read


class Channel:
    """One process in a cell and the stream to it. The process may send anything.

    `on_frame` is called with each frame. `on_end` is called once, when the process has ended. A
    process that violates the protocol is killed. The kernel reports the process ID with the first
    bytes, unless `set_pid` is called before.

    Without a pidfd it costs one descriptor less, but if others hold copies of the peer's end of the
    stream, the end of the process is not noticed. `has_ended` looks.
    """

    def __init__(
        self,
        loop: EventSource,
        on_frame: Callable[[protocol.Frame], None],
        on_end: Callable[[], None],
        *,
        has_pidfd: bool = True,
    ) -> None:
        self.pid = 0
        self._has_pidfd = has_pidfd
        self._process: KnownProcess | None = None
        self._loop, self._on_frame, self._on_end = loop, on_frame, on_end
        self._decoder = protocol.Decoder()
        self._outgoing: deque[tuple[bytes, list[int]]] = deque()
        self._pidfd = -1
        self._watches_writable = False
        self._failures = 0  # to send, in a row
        self.open = True
        self._socket, self._peer = socket.socketpair()
        try:
            enable_credentials(self._socket)
            self._socket.setblocking(False)
            loop.register(self._socket.fileno(), self._on_event)
        except BaseException:
            self.close()
            raise

    @property
    def peer_fd(self) -> int:
        """The peer's end of the stream. Send it into the cell, then call `close_peer`."""
        return self._peer.fileno()

    def close_peer(self) -> None:
        """Close our copy of the peer's end."""
        self._peer.close()

    def send(self, frame: bytes, descriptors: list[int] | None = None) -> None:
        """Send `frame`, or queue it if the socket is full. The descriptors are duplicated."""
        if not self.open:
            return
        if not descriptors and not self._outgoing and not (frame := frame[self._send_now(frame) :]):
            return
        copies = [os.dup(descriptor) for descriptor in descriptors or ()]
        self._outgoing.append((frame, copies))
        if len(self._outgoing) == 1:
            self._flush()

    def _send_now(self, frame: bytes) -> int:
        """Send as much of `frame` as the socket accepts now. Return the number of bytes."""
        with contextlib.suppress(OSError):
            return self._socket.send(frame)
        return 0

    def _flush(self) -> None:
        while self._outgoing:
            frame, descriptors = self._outgoing[0]
            try:
                sent = (
                    socket.send_fds(self._socket, [frame], descriptors)
                    if descriptors
                    else self._socket.send(frame)
                )
            except ConnectionError:
                return  # `_read` or `_on_exit` handles the end of the process
            except OSError as error:  # no room, or for example no memory: it is sent again
                sent = -1
                self._failures += not isinstance(error, BlockingIOError)
                if self._failures > _MAX_FAILURES:
                    raise
            if sent >= 0:
                self._failures = 0
                _close(descriptors)
                self._outgoing[0] = frame[sent:], []
            if sent < len(frame):
                self._watch_writable(True)
                return
            self._outgoing.popleft()
        self._watch_writable(False)

    def _watch_writable(self, wanted: bool) -> None:
        if wanted != self._watches_writable:
            self._watches_writable = wanted
            self._loop.unregister(self._socket.fileno())
            self._loop.register(self._socket.fileno(), self._on_event, self._flags())

    def _flags(self) -> int:
        return select.EPOLLIN | (select.EPOLLOUT if self._watches_writable else 0)

    def _on_event(self) -> None:
        if self._outgoing:
            self._flush()
        if self._loop.is_full:
            self._loop.pause_reading(self._socket.fileno(), self._flags())
        else:
            self._read()

    def _read(self) -> bool:
        """Read once. Return True if there was data and the channel is still open."""
        if (received := receive(self._socket, _READ_SIZE, CREDENTIALS_SPACE)) is None:
            return False
        data, ancillary = received
        if not data:
            if self._pidfd < 0:
                self._close_and_report()
            else:  # the process may live on without the stream, as after `exec`
                self._loop.unregister(self._socket.fileno())
            return False
        self._handle_data(data, ancillary)
        return self.open

    def _handle_data(self, data: bytes, ancillary: list[tuple[int, int, bytes]]) -> None:
        if not self.pid and (pid := sender_pid(ancillary)):
            self.set_pid(pid)
        try:
            for frame in self._decoder.feed(data):
                if self.open:
                    self._on_frame(frame)
        except (protocol.ProtocolError, KeyError, TypeError, ValueError):
            self.kill()

    def set_pid(self, pid: int) -> None:
        """Set the process ID if it is known before the process sends anything."""
        self.pid = pid
        try:
            if not self._has_pidfd:
                self._process = KnownProcess(pid)
                return
            self._pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            self._close_and_report()
            return
        # The end of the stream does not show the end of the process: its children may hold copies.
        self._loop.register(self._pidfd, self._on_exit)

    def _on_exit(self) -> None:
        while self._read():
            pass  # frames that it sent before its end
        self._close_and_report()

    def signal(self, number: int) -> None:
        """Send signal `number` to the process."""
        if self._process is not None:
            self._process.send_signal(number)
        if self._pidfd >= 0:
            try:
                signal.pidfd_send_signal(self._pidfd, number)
            except ProcessLookupError:
                return

    def has_ended(self) -> bool:
        """Return True if the channel is closed, or the process is known to have ended."""
        return not self.open or (self._process is not None and self._process.has_ended())

    def kill(self) -> None:
        """Kill the process. `on_end` is called when it has ended."""
        self.signal(signal.SIGKILL)

    def kill_and_close(self) -> None:
        """Kill the process if its ID is known, close the channel, and call `on_end` immediately."""
        self.kill()
        self._close_and_report()

    def _close_and_report(self) -> None:
        if self.open:
            self.close()
            self._on_end()

    def close(self) -> None:
        """Close the channel without calling `on_end`."""
        if not self.open:
            return
        self.open = False
        self._loop.unregister(self._socket.fileno())
        self._socket.close()
        self._peer.close()
        if self._pidfd >= 0:
            self._loop.unregister(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        for _, descriptors in self._outgoing:
            _close(descriptors)
        self._outgoing.clear()


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
