"""The pipes of commands that have been answered, which other processes may still hold."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable

from ..poll_loop import PollLoop

_READ_BYTES = 1 << 16


class PipeDrain:
    """Reads pipes to their end and drops what it reads, so that no writer fails or waits."""

    def __init__(self, loop: PollLoop) -> None:
        self._loop, self._readers = loop, set[int]()

    def add(self, readers: Iterable[int]) -> None:
        """Own the non-blocking `readers`."""
        for reader in readers:
            self._readers.add(reader)
            self._loop.watch(reader, functools.partial(self._on_data, reader))

    def _on_data(self, reader: int) -> None:
        try:
            has_more = bool(os.read(reader, _READ_BYTES))
        except BlockingIOError:
            has_more = True
        except OSError:
            has_more = False
        if not has_more:
            self._close(reader)

    def _close(self, reader: int) -> None:
        self._readers.remove(reader)
        self._loop.unwatch(reader)
        os.close(reader)

    def close(self) -> None:
        """Close all of them."""
        for reader in [*self._readers]:
            self._close(reader)
