"""Limit output to its first and its last bytes. Pure: no I/O."""

from __future__ import annotations

from collections import deque
from typing import Literal

Stream = Literal["stdout", "stderr"]

_PENDING_BYTES = 1024 * 1024  # kept by `add_pending` if there is no limit


class OutputLimit:
    """Keep the first and last half of `max_bytes` of output. Count the bytes between.

    `add` returns the first half as it comes. `finish` returns the last half, which is known only at
    the end. If `max_bytes` is None, `add` returns everything. With `text`, each piece of output
    must consist of whole UTF-8 characters, and no character is cut in two.
    """

    def __init__(self, max_bytes: int | None, *, text: bool = False) -> None:
        self.max_bytes = max_bytes
        self._text = text
        self._head_room = 0 if max_bytes is None else max_bytes - max_bytes // 2
        self._tail_room = _PENDING_BYTES if max_bytes is None else max_bytes // 2
        self._tail: deque[tuple[Stream, bytes]] = deque()
        self._tail_size = 0
        self._lost: dict[Stream, int] = {"stdout": 0, "stderr": 0}
        self.is_empty = True  # `finish` would return nothing
        self.total_bytes = 0  # that `add` got

    def add(self, stream: Stream, data: bytes) -> bytes:
        """Add output. Return the part of it that can be passed on immediately."""
        self.total_bytes += len(data)
        if self.max_bytes is None:
            return data
        if not self._head_room:
            self._add_to_tail(stream, data)
            return b""
        head = data[: self._head_room]
        if len(head) == len(data):
            self._head_room -= len(head)
            return head
        if self._text:
            head = head[: _character_start(data, len(head))]
            self._tail_room += self._head_room - len(head)
        self._head_room = 0
        self._add_to_tail(stream, data[len(head) :])
        return head

    def add_pending(self, stream: Stream, data: bytes) -> None:
        """Add output that belongs to no block yet. `pending` returns its last bytes."""
        self._add_to_tail(stream, data)

    def pending(self) -> list[tuple[Stream, bytes]]:
        """Return the output that `add_pending` has kept: at most the last half of the limit."""
        self._trim_tail()
        return list(self._tail)

    def finish(self) -> tuple[dict[str, int] | None, list[tuple[Stream, bytes]]]:
        """Return the number of lost bytes per stream, None if none was lost, and the last half."""
        self._trim_tail()
        if self._text and self._tail and any(self._lost.values()):
            stream, data = self._tail[0]
            start = _character_end(data)
            self._lost[stream] += start
            self._tail[0] = (stream, data[start:])
        lost = {"stdout": self._lost["stdout"], "stderr": self._lost["stderr"]}
        return (lost if any(lost.values()) else None), [piece for piece in self._tail if piece[1]]

    def _add_to_tail(self, stream: Stream, data: bytes) -> None:
        if not data:
            return
        self.is_empty = False
        self._tail.append((stream, data))
        self._tail_size += len(data)
        # Drop whole pieces only: cutting one on each call would copy all output.
        while self._tail and self._tail_size - len(self._tail[0][1]) >= self._tail_room:
            old_stream, piece = self._tail.popleft()
            self._tail_size -= len(piece)
            self._lost[old_stream] += len(piece)

    def _trim_tail(self) -> None:
        """Cut the oldest piece, so that the last half is at most its share."""
        if (excess := self._tail_size - self._tail_room) > 0:
            stream, piece = self._tail[0]
            self._tail[0] = (stream, piece[excess:])
            self._tail_size -= excess
            self._lost[stream] += excess


def _character_start(data: bytes, index: int) -> int:
    """Return the start of the UTF-8 character that `index` is in."""
    while index > 0 and _continues_character(data[index]):
        index -= 1
    return index


def _character_end(data: bytes) -> int:
    """Return where the first whole UTF-8 character of `data` starts."""
    index = 0
    while index < len(data) and _continues_character(data[index]):
        index += 1
    return index


def _continues_character(byte: int) -> bool:
    return byte & 0xC0 == 0x80
