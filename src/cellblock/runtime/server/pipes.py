"""The output pipes of a cell, read in the order in which they were written.

Two ordinary pipes do not show which was written first. These do: in packet mode (`O_DIRECT`, one
page) a pipe holds one packet, so that a program that writes to one and then to the other waits for
the server, and edge-triggered epoll reports pipes in the order in which they became readable. Each
write costs a context switch, so a stream that is the only one to write for long gets a large pipe
until the other one is written.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from typing import Final

from ..output_limit import OutputLimit, Stream

_PACKET_BYTES: Final = 4096
_READ_BYTES: Final = 256 * 1024
_LARGE_PIPE_BYTES: Final = 1024 * 1024
_FIONREAD: Final = 0x541B  # the number of bytes in a pipe, see FIONREAD(2const)
_ZERO: Final = bytes(4)
_MAX_PACKETS_IN_A_ROW: Final = 512  # of one stream, until it gets a large pipe


class OutputPipe:
    """The pipe of one stream. The writing end stays open, since the pipe's mode is set there."""

    def __init__(self, stream: Stream) -> None:
        self.stream: Stream = stream
        self.reader, self.writer = _pipe()
        try:
            os.set_blocking(self.reader, False)
            # So that code can open /dev/stdout, also if it runs as another user. gVisor does not
            # allow it.
            with contextlib.suppress(PermissionError):
                os.fchmod(self.writer, 0o622)
        except BaseException:
            self.close()
            raise
        self._packet_mode = self._resize(_PACKET_BYTES)
        # It may hold bytes that edge-triggered epoll has already reported.
        self.has_more = False

    def _resize(self, size: int) -> bool:
        try:
            fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, size)
        except OSError:  # it holds more than that, or the user's pipe memory is used up
            return False
        return True

    def read(self) -> list[bytes]:
        """Read after one report of epoll: one packet, or up to 16 pieces of a large pipe."""
        pieces: list[bytes] = []
        self.has_more = False
        while piece := self._read_once():
            pieces.append(piece)
            if self._packet_mode or len(pieces) >= 16:
                self.has_more = not self._packet_mode
                break
        return pieces

    def _read_once(self) -> bytes:
        try:
            # A buffer of this size is allocated for each call.
            return os.read(self.reader, _PACKET_BYTES if self._packet_mode else _READ_BYTES)
        except BlockingIOError:
            return b""

    def drain(self) -> list[bytes]:
        """Read until the pipe is empty. Only after the last writer has ended."""
        pieces: list[bytes] = []
        while piece := self._read_once():
            pieces.append(piece)
        return pieces

    def read_current(self) -> list[bytes]:
        """Read as much as the pipe can hold at one time, while writers may keep writing."""
        pieces, room = list[bytes](), _PACKET_BYTES if self._packet_mode else _LARGE_PIPE_BYTES
        while room > 0 and (piece := self._read_once()):
            pieces.append(piece)
            room -= len(piece) if not self._packet_mode else _PACKET_BYTES
        return pieces

    def leave_packet_mode(self) -> None:
        """Use a large pipe: faster, but the order relative to the other stream is not exact."""
        if self._packet_mode:
            self._packet_mode = False
            self._set_packet_flag(False)
            if not self._resize(_LARGE_PIPE_BYTES):
                self._resize(16 * _PACKET_BYTES)

    def enter_packet_mode(self) -> list[bytes]:
        """Hold one packet at a time again. Return what had to be read to make that possible."""
        if self._packet_mode:
            return []
        pieces = self.drain()
        self._set_packet_flag(True)
        if self._resize(_PACKET_BYTES):
            self._packet_mode = True
            pieces += self.drain()
        else:
            self._set_packet_flag(False)
        return pieces

    def _set_packet_flag(self, on: bool) -> None:
        flags = fcntl.fcntl(self.writer, fcntl.F_GETFL)
        fcntl.fcntl(self.writer, fcntl.F_SETFL, flags | os.O_DIRECT if on else flags & ~os.O_DIRECT)

    def close(self) -> None:
        """Close both ends."""
        for descriptor in (self.reader, self.writer):
            try:
                os.close(descriptor)
            except OSError:
                continue


def _pipe() -> tuple[int, int]:
    try:
        return os.pipe2(os.O_CLOEXEC | os.O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # gVisor has no packet mode: the order of nearly simultaneous writes is lost.
        return os.pipe2(os.O_CLOEXEC)


class OutputPipes:
    """Both pipes of one cell, and the output limit that they share."""

    def __init__(self, max_bytes: int | None) -> None:
        self.readers: dict[int, OutputPipe] = {}
        try:
            for stream in ("stdout", "stderr"):
                pipe = OutputPipe(stream)
                self.readers[pipe.reader] = pipe
        except BaseException:
            self.close()
            raise
        self.limit = OutputLimit(max_bytes)
        self._last: OutputPipe | None = None
        self._in_a_row = 0

    @property
    def writers(self) -> list[int]:
        """Return the writing ends, that of stdout first."""
        return [pipe.writer for pipe in self.readers.values()]

    def read(self, reader: int) -> list[tuple[Stream, bytes]]:
        """Read after epoll has reported the descriptor `reader`."""
        pipe = self.readers[reader]
        pieces: list[tuple[Stream, bytes]] = []
        if self._last is not pipe:
            if self._last is not None:
                pieces += _tagged(self._last, self._last.enter_packet_mode())
            self._last, self._in_a_row = pipe, 0
        found = pipe.read()
        self._in_a_row += len(found)
        if self._in_a_row > _MAX_PACKETS_IN_A_ROW:
            pipe.leave_packet_mode()
        return pieces + _tagged(pipe, found)

    def read_current(self) -> list[tuple[Stream, bytes]]:
        """Read as much as both pipes can hold at one time.

        For the end of a session's block: the session's processes may keep writing.
        """
        if self._are_empty():
            return []
        return [
            (pipe.stream, piece) for pipe in self.readers.values() for piece in pipe.read_current()
        ]

    def drain(self) -> list[tuple[Stream, bytes]]:
        """Read both pipes until they are empty. Only after the last writer has ended."""
        if self._are_empty():
            return []
        return [(pipe.stream, piece) for pipe in self.readers.values() for piece in pipe.drain()]

    def _are_empty(self) -> bool:
        return all([fcntl.ioctl(reader, _FIONREAD, _ZERO) == _ZERO for reader in self.readers])

    def close(self) -> None:
        """Close both pipes."""
        for pipe in self.readers.values():
            pipe.close()


def _tagged(pipe: OutputPipe, pieces: list[bytes]) -> list[tuple[Stream, bytes]]:
    return [(pipe.stream, piece) for piece in pieces]
