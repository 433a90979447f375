"""The server's end of a control stream into a cell: frames both ways, descriptors inwards, nothing ever waited for."""

from __future__ import annotations

import os
import select
import signal
import socket
from collections import deque
from collections.abc import Callable

from ... import protocol
from ...linux.credentials import ROOM, ask_for_sender, sender
from ..interfaces import Watcher

_READ = 1 << 16  # more would make each read give memory back to the kernel


class Channel:
    """One process in a cell, and the stream to it. What comes from it may be anything.

    `on_frame` is called with each frame, `on_end` once, when the process has ended or speaks no sense. Which process that is,
    the kernel tells with the first bytes, if nobody did before.
    """

    def __init__(
        self, loop: Watcher, on_frame: Callable[[protocol.Frame], None], on_end: Callable[[], None]
    ) -> None:
        self.pid = 0
        self._loop, self._on_frame, self._on_end = loop, on_frame, on_end
        self._socket, self.theirs = socket.socketpair()
        ask_for_sender(self._socket)
        self._socket.setblocking(False)
        self._decoder = protocol.Decoder()
        self._outgoing: deque[tuple[bytes, list[int]]] = deque()
        self._pidfd = -1
        self._waits_for_room = False
        self.open = True
        loop.watch(self._socket.fileno(), self._on_event)

    def hand_over(self) -> int:
        """Give the inner end, to be sent into the cell, and closed here with `sent`."""
        return self.theirs.fileno()

    def sent(self) -> None:
        """Let go of the inner end: it is in the cell."""
        self.theirs.close()

    def send(self, frame: bytes, descriptors: list[int] | None = None) -> None:
        """Send `frame`, now or as soon as it is taken; the descriptors are duplicated at once."""
        if not self.open:
            return
        if (
            not descriptors
            and not self._outgoing
            and not (frame := frame[self._taken_now(frame) :])
        ):
            return
        copies = [os.dup(descriptor) for descriptor in descriptors or ()]
        self._outgoing.append((frame, copies))
        if len(self._outgoing) == 1:
            self._flush()

    def _taken_now(self, frame: bytes) -> int:
        """Send what of `frame` is taken at once, nearly always all; give how many bytes that are."""
        try:
            return self._socket.send(frame)
        except OSError:
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
            except BlockingIOError:
                sent = -1
            except OSError:
                return  # its end is found out elsewhere
            if sent >= 0:
                _close(descriptors)
                self._outgoing[0] = frame[sent:], []
            if sent < len(frame):
                self._wait_for_room(True)
                return
            self._outgoing.popleft()
        self._wait_for_room(False)

    def _wait_for_room(self, wanted: bool) -> None:
        if wanted != self._waits_for_room:
            self._waits_for_room = wanted
            self._loop.forget(self._socket.fileno())
            self._loop.watch(self._socket.fileno(), self._on_event, self._flags())

    def _flags(self) -> int:
        return select.EPOLLIN | (select.EPOLLOUT if self._waits_for_room else 0)

    def _on_event(self) -> None:
        if self._outgoing:
            self._flush()
        if self._loop.is_full:
            self._loop.hold(self._socket.fileno(), self._flags())
        else:
            self._read()

    def _read(self) -> bool:
        """Take in what is there; tell whether that was anything."""
        try:
            data, ancillary, _, _ = self._socket.recvmsg(_READ, ROOM)
        except BlockingIOError:
            return False
        except OSError:
            data, ancillary = b"", []
        if not data:
            if self._pidfd < 0:
                self._end()
            else:  # it lives on, as another program perhaps: its end will be told
                self._loop.forget(self._socket.fileno())
            return False
        self._hear(data, ancillary)
        return self.open

    def _hear(self, data: bytes, ancillary: list[tuple[int, int, bytes]]) -> None:
        if not self.pid and (pid := sender(ancillary)):
            self.meet(pid)
        try:
            for frame in self._decoder.feed(data):
                if self.open:
                    self._on_frame(frame)
        except (protocol.WireError, KeyError, TypeError, ValueError):
            self.kill()  # what speaks no sense is not spoken with

    def meet(self, pid: int) -> None:
        """Know that it is process `pid`, where that is known from elsewhere before it says anything."""
        self.pid = pid
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except OSError:
            self._end()
            return
        # Its end is seen here and not by the end of the stream, of which its children may hold copies.
        self._loop.watch(self._pidfd, self._on_death)

    def _on_death(self) -> None:
        while self._read():
            pass  # what it said last is still to be heard
        self._end()

    def signal(self, number: int) -> None:
        """Send signal `number` to the process."""
        if self._pidfd >= 0:
            try:
                signal.pidfd_send_signal(self._pidfd, number)
            except ProcessLookupError:
                return

    def kill(self) -> None:
        """End the process; `on_end` follows."""
        self.signal(signal.SIGKILL)

    def give_up(self) -> None:
        """End the process, which may never have said which one it is, and hear nothing more of it."""
        self.kill()
        self._end()

    def _end(self) -> None:
        if self.open:
            self.close()
            self._on_end()

    def close(self) -> None:
        """Let go of it, without a word to anybody."""
        if not self.open:
            return
        self.open = False
        self._loop.forget(self._socket.fileno())
        self._socket.close()
        self.theirs.close()
        if self._pidfd >= 0:
            self._loop.forget(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        for _, descriptors in self._outgoing:
            _close(descriptors)
        self._outgoing.clear()


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
