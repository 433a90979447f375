"""The cap on a block's output where it comes as text: its first and its last half are kept. Pure."""

from __future__ import annotations

from collections import deque

from ...events import Output, OutputTruncated, Stream


class Cap:
    """Keep `most` bytes of what block `block` prints; `None` means all of it.

    The first half is passed on as it comes; the last one when the block is over.
    """

    def __init__(self, block: int, most: int | None) -> None:
        self._block, self._most = block, most
        self._head_room = most // 2 if most is not None else 0
        self._tail_room = most - self._head_room if most is not None else 0
        self._head_is_full = False
        self._tail: deque[tuple[Stream, bytes]] = deque()
        self._tail_size = 0
        self._lost: dict[Stream, int] = {"stdout": 0, "stderr": 0}

    def add(self, output: Output) -> list[Output]:
        """Take in output, and give what of it can be passed on now."""
        if self._most is None:
            return [output]
        data = output.text.encode(errors="replace")
        if self._head_is_full:
            self._keep(output.stream, data)
            return []
        if len(data) <= self._head_room:
            self._head_room -= len(data)
            return [output]
        head = data[: self._head_room].decode(errors="ignore")
        size = len(head.encode())  # what is too short for a whole character is given to the tail
        self._head_is_full, self._tail_room = True, self._tail_room + self._head_room - size
        self._keep(output.stream, data[size:])
        return [Output(self._block, output.stream, head)] if head else []

    def end(self) -> list[OutputTruncated | Output]:
        """Give the rest, after the mark of what was left out before it."""
        # What begins in the middle of a character loses the rest of that character too.
        if any(self._lost.values()) and self._tail:
            stream, data = self._tail[0]
            whole = data.lstrip(bytes(range(0x80, 0xC0)))
            self._lost[stream] += len(data) - len(whole)
            self._tail[0] = stream, whole
        cut: list[OutputTruncated | Output] = []
        if any(self._lost.values()):
            cut.append(OutputTruncated(self._block, self._lost["stdout"], self._lost["stderr"]))
        rest = [
            Output(self._block, stream, data.decode(errors="replace"))
            for stream, data in self._tail
            if data
        ]
        self._tail.clear()
        return [*cut, *rest]

    def _keep(self, stream: Stream, data: bytes) -> None:
        self._tail.append((stream, data))
        self._tail_size += len(data)
        while self._tail_size > self._tail_room:
            oldest, first = self._tail.popleft()
            over = min(self._tail_size - self._tail_room, len(first))
            self._lost[oldest] += over
            self._tail_size -= over
            if over < len(first):
                self._tail.appendleft((oldest, first[over:]))
