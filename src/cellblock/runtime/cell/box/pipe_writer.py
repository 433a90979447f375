"""Write to a pipe as fast as it is read, without waiting."""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable

from ..poll_loop import PollLoop


class PipeWriter:
    """Owns the non-blocking `writer`. `on_taken` is called for each piece that is used."""

    def __init__(self, loop: PollLoop, writer: int, on_taken: Callable[[], None]) -> None:
        self._loop, self._writer, self._on_taken = loop, writer, on_taken
        self._pieces = deque[memoryview]()
        self._is_last = False

    @property
    def is_open(self) -> bool:
        """Whether something can still be written."""
        return self._writer >= 0

    def add(self, data: bytes) -> None:
        """Write a piece as soon as there is room. An empty one is the end."""
        if self._writer < 0:
            if data:
                self._on_taken()
            return
        self._is_last = self._is_last or not data
        if data:
            self._pieces.append(memoryview(data))
        self._write()

    def _write(self) -> None:
        try:
            while self._pieces:
                piece = self._pieces[0]
                self._pieces[0] = piece[os.write(self._writer, piece) :]
                if not self._pieces[0]:
                    self._pieces.popleft()
                    self._on_taken()
        except BlockingIOError:
            self._loop.watch(self._writer, self._write, select.POLLOUT)
            return
        except OSError:  # nobody reads it any more
            self.close()
            return
        self._loop.unwatch(self._writer)
        if self._is_last:
            self.close()

    def close(self) -> None:
        """Close the pipe. What is left counts as used."""
        if self._writer >= 0:
            self._loop.unwatch(self._writer)
            os.close(self._writer)
            self._writer = -1
        while self._pieces:
            self._pieces.popleft()
            self._on_taken()
