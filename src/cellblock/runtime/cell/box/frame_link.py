"""A stream of frames that never makes its process wait."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable

from ... import protocol
from ...linux.retry import receive
from ..poll_loop import PollLoop

_FULL_BYTES = 1 << 19  # unsent
_READ_BYTES = 1 << 16


class FrameLink:
    """Frames to and from a peer over the socket `stream`, which it owns.

    `on_frame` is called with each frame, `on_end` once when the peer has closed the stream or does
    not follow the protocol, `on_change` when `is_full` has changed: so much is unsent that nothing
    more should be read for it.
    """

    def __init__(
        self,
        loop: PollLoop,
        stream: socket.socket,
        on_frame: Callable[[protocol.Frame], None],
        on_end: Callable[[], None],
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop, self._stream = loop, stream
        self._on_frame, self._on_end, self._on_change = on_frame, on_end, on_change
        self._decoder = protocol.Decoder()
        self._outgoing = bytearray()
        self._is_held = self.is_full = False
        self.is_open = True
        stream.setblocking(False)
        self._watch()

    def send(self, frame: bytes) -> None:
        """Send `frame`, or keep what the peer does not accept yet."""
        if not self.is_open:
            return
        if self._outgoing or len(frame := frame[self._send_now(frame) :]):
            was_empty = not self._outgoing
            self._outgoing += frame
            if was_empty:
                self._watch()
            if not self.is_full and len(self._outgoing) >= _FULL_BYTES:
                self.is_full = True
                self._on_change()

    def hold(self, is_held: bool) -> None:
        """Stop reading from the peer, or go on."""
        self._is_held = is_held
        if self.is_open:
            self._watch()

    def _send_now(self, data: bytes | bytearray) -> int:
        try:
            return self._stream.send(data)
        except ConnectionError:  # the reading side reports the end
            return len(data)
        except OSError:  # no room
            return 0

    def _watch(self) -> None:
        events = (0 if self._is_held else select.POLLIN) | (select.POLLOUT if self._outgoing else 0)
        if events:
            self._loop.watch(self._stream.fileno(), self._on_event, events)
        else:
            self._loop.unwatch(self._stream.fileno())

    def _on_event(self) -> None:
        if self._outgoing:
            self._flush()
        if not self._is_held and self.is_open:
            self._read()

    def _flush(self) -> None:
        del self._outgoing[: self._send_now(self._outgoing)]
        if not self._outgoing:
            self._watch()
        if self.is_full and len(self._outgoing) < _FULL_BYTES // 2:
            self.is_full = False
            self._on_change()

    def _read(self) -> None:
        if (received := receive(self._stream, _READ_BYTES)) is None:
            return
        data, _ = received
        if not data:
            self._end()
            return
        try:
            for frame in self._decoder.feed(data):
                if self.is_open:
                    self._on_frame(frame)
        except protocol.ProtocolError:
            self._end()

    def _end(self) -> None:
        self.close()
        self._on_end()

    def close(self) -> None:
        """Close the stream."""
        if self.is_open:
            self.is_open = False
            self._loop.unwatch(self._stream.fileno())
            self._stream.close()
            self._outgoing.clear()
