"""One run of a connection, from the side of whoever waits for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from ..runtime import protocol


class Run:
    """The frames of one run that nobody has read yet. Belongs to the loop on which it is made."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.frames = deque[protocol.Frame]()
        self.over = False
        self.drop = False
        self._waits: asyncio.Future[None] | None = None
        self._has_ended = False
        self._end: asyncio.Event | None = None  # made for those who want it, which are few

    async def wait(self) -> None:
        """Wait until `tell` is called; where that was done before, there is something to be seen already."""
        self._waits = self.loop.create_future()
        try:
            await self._waits
        finally:
            self._waits = None

    def end(self) -> asyncio.Event:
        """Give what is set when the last frame has come."""
        if self._end is None:
            self._end = asyncio.Event()
            if self._has_ended:
                self._end.set()
        return self._end

    def tell(self, *, has_ended: bool) -> None:
        """Say that there is something new, from any loop."""
        if asyncio.get_running_loop() is self.loop:
            self._hear(has_ended)
        else:
            with contextlib.suppress(RuntimeError):  # a loop that was closed waits for nothing
                self.loop.call_soon_threadsafe(self._hear, has_ended)

    def _hear(self, has_ended: bool) -> None:
        if self._waits is not None and not self._waits.done():
            self._waits.set_result(None)
        if has_ended:
            self._has_ended = True
            if self._end is not None:
                self._end.set()
