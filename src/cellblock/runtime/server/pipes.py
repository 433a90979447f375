"""One cell's output: two pipes, read in the order in which they were written, kept up to a cap.

Two pipes do not tell which was written first. These do: each holds one packet at a time (`O_DIRECT`, one page), so a
program that writes to one and then the other waits for us, and an edge-triggered epoll reports pipes in the order in which
they became readable. That costs a switch of processes for each write, so a stream that writes alone for long is
given a large pipe until the other one speaks.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections import deque
from typing import Final, Literal

Stream = Literal["stdout", "stderr"]

_PAGE: Final = 4096
_READ: Final = 256 * 1024
_LARGE: Final = 1024 * 1024
_FIONREAD: Final = 0x541B  # gives how many bytes a pipe holds; see ioctl_tty(2)
_NOTHING: Final = bytes(4)
_ALONE: Final = 512  # packets of one stream in a row, after which it is given a large pipe


class OutputPipe:
    """The reading end of one stream, with a hold on the writing end to change how it works."""

    def __init__(self, stream: Stream) -> None:
        self.stream: Stream = stream
        self.reader, self.writer = _pipe()
        try:  # whoever holds it may open it again as /dev/stdout, also where cells of root are another user
            os.fchmod(self.writer, 0o622)
        except PermissionError:
            pass  # in gVisor
        os.set_blocking(self.reader, False)
        self._tight = self._resize(_PAGE)
        self.more = (
            False  # whether it may hold bytes that epoll, being edge-triggered, has told of already
        )

    def _resize(self, size: int) -> bool:
        try:
            fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, size)
        except OSError:  # more in it than would fit, or over the user's share of pipe memory
            return False
        return True

    def read(self) -> list[bytes]:
        """Give what can be read for one report of epoll: one packet, or all there is in a large pipe."""
        pieces: list[bytes] = []
        self.more = False
        while piece := self._read_once():
            pieces.append(piece)
            if self._tight or len(pieces) >= 16:
                self.more = not self._tight
                break
        return pieces

    def _read_once(self) -> bytes:
        try:
            return os.read(
                self.reader, _PAGE if self._tight else _READ
            )  # the buffer is made before it is known what comes
        except BlockingIOError:
            return b""

    def rest(self) -> list[bytes]:
        """Give all that is left; for the end, when nobody writes any more."""
        pieces: list[bytes] = []
        while piece := self._read_once():
            pieces.append(piece)
        return pieces

    def held(self) -> list[bytes]:
        """Give what the pipe held when asked, and not what is written meanwhile."""
        pieces, room = list[bytes](), _PAGE if self._tight else _LARGE
        while room > 0 and (piece := self._read_once()):
            pieces.append(piece)
            room -= len(piece) if not self._tight else _PAGE
        return pieces

    def loosen(self) -> None:
        """Give it a large pipe: faster, and no longer in exact order with the other stream."""
        if self._tight:
            self._tight = False
            self._packets(False)
            if not self._resize(_LARGE):
                self._resize(16 * _PAGE)

    def tighten(self) -> list[bytes]:
        """Go back to one packet at a time; gives what had to be read for that."""
        if self._tight:
            return []
        pieces = self.rest()
        self._packets(True)
        if self._resize(_PAGE):
            self._tight = True
            pieces += self.rest()
        else:
            self._packets(False)
        return pieces

    def _packets(self, on: bool) -> None:
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
        return os.pipe2(
            os.O_CLOEXEC
        )  # gVisor has no packets: of what is written within a moment, the order is lost


class Keeper:
    """Keep the first and the last half of `cap` bytes of output, and count what lies between. Pure.

    The first half is given out as it comes; the last half is known only at the end. No cap: all of it is given out.
    """

    def __init__(self, cap: int | None) -> None:
        self.cap = cap
        self._head_left = 0 if cap is None else cap - cap // 2
        self._tail: deque[tuple[Stream, bytes]] = deque()
        self._tail_size = 0
        self._room = _LARGE if cap is None else cap // 2
        self._lost: dict[Stream, int] = {"stdout": 0, "stderr": 0}
        self.is_empty = True  # there is no last half, and nothing was lost

    def take(self, stream: Stream, data: bytes) -> bytes:
        """Take in output and give the part of it that can go out at once."""
        if self.cap is None:
            return data
        now = data[: self._head_left] if self._head_left else b""
        self._head_left -= len(now)
        later = data[len(now) :] if now else data
        if later:
            self._keep(stream, later)
        return now

    def _keep(self, stream: Stream, data: bytes) -> None:
        self.is_empty = False
        self._tail.append((stream, data))
        self._tail_size += len(data)
        # Whole pieces alone: to cut one each time something comes would copy all that passes.
        while self._tail and self._tail_size - len(self._tail[0][1]) >= self._room:
            old, piece = self._tail.popleft()
            self._tail_size -= len(piece)
            self._lost[old] += len(piece)

    def _trim(self) -> None:
        """Cut the oldest piece, so that no more is left than there is room for."""
        if (excess := self._tail_size - self._room) > 0:
            old, piece = self._tail[0]
            self._tail[0] = (old, piece[excess:])
            self._tail_size -= excess
            self._lost[old] += excess

    def hold(self, stream: Stream, data: bytes) -> None:
        """Take in output that is nobody's yet; all of it waits, up to half of the cap."""
        self._keep(stream, data)

    def held(self) -> list[tuple[Stream, bytes]]:
        """Give what was held."""
        self._trim()
        return list(self._tail)

    def rest(self) -> tuple[dict[str, int] | None, list[tuple[Stream, bytes]]]:
        """Give the number of bytes lost per stream (`None`: none) and the last half."""
        self._trim()
        lost = {"stdout": self._lost["stdout"], "stderr": self._lost["stderr"]}
        return (lost if any(lost.values()) else None), list(self._tail)


class Pump:
    """Both pipes of one cell and the one `Keeper` behind them."""

    def __init__(self, cap: int | None) -> None:
        self.pipes: dict[int, OutputPipe] = {}
        for stream in ("stdout", "stderr"):
            pipe = OutputPipe(stream)
            self.pipes[pipe.reader] = pipe
        self.keeper = Keeper(cap)
        self._last: OutputPipe | None = None
        self._in_a_row = 0

    @property
    def writers(self) -> list[int]:
        """The writing ends, stdout first."""
        return [pipe.writer for pipe in self.pipes.values()]

    def readable(self, reader: int) -> list[tuple[Stream, bytes]]:
        """Read what epoll reported for `reader`."""
        pipe = self.pipes[reader]
        pieces: list[tuple[Stream, bytes]] = []
        if self._last is not pipe:
            if self._last is not None:
                pieces += _tagged(self._last, self._last.tighten())
            self._last, self._in_a_row = pipe, 0
        found = pipe.read()
        self._in_a_row += len(found)
        if self._in_a_row > _ALONE:
            pipe.loosen()
        return pieces + _tagged(pipe, found)

    def settle(self) -> list[tuple[Stream, bytes]]:
        """Read what is in both pipes at most at one time; for the end of a block whose session goes on and may write."""
        if self._are_empty():
            return []
        return [(pipe.stream, piece) for pipe in self.pipes.values() for piece in pipe.held()]

    def rest(self) -> list[tuple[Stream, bytes]]:
        """Read what is left in both pipes."""
        if self._are_empty():
            return []
        return [(pipe.stream, piece) for pipe in self.pipes.values() for piece in pipe.rest()]

    def _are_empty(self) -> bool:
        return all([fcntl.ioctl(reader, _FIONREAD, _NOTHING) == _NOTHING for reader in self.pipes])

    def close(self) -> None:
        """Close all four ends."""
        for pipe in self.pipes.values():
            pipe.close()


def _tagged(pipe: OutputPipe, pieces: list[bytes]) -> list[tuple[Stream, bytes]]:
    return [(pipe.stream, piece) for piece in pieces]
