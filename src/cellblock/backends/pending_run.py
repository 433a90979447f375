"""One run of a connection, as the task that waits for it sees it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections import deque

from ..aio.running_loop import running_loop
from ..runtime import protocol

_MAX_JOINED_BYTES = 4096  # of one frame; longer ones gain nothing from being joined


class PendingRun:
    """The unread frames of one run. Belongs to the loop on which it is created.

    final_kind    the kind of its last frame, unless that is FAILED
    session       the live session that it is for
    is_complete   its last frame has been received, but maybe not been read
    """

    def __init__(self, final_kind: int, session: int | None = None) -> None:
        self.loop = running_loop()
        self.final_kind, self.session, self.is_complete = final_kind, session, False
        self.frames = deque[protocol.Frame]()
        self.is_done = False
        self.discard_frames = False
        self._waiter: asyncio.Future[None] | None = None
        self._has_ended = False
        self._ended: asyncio.Future[None] | None = None  # created on demand; few runs need it
        self._cancellation = threading.Lock()  # acquired by the first cancellation

    def adopt(self) -> None:
        """Move to the running loop. The task of the run is lost, because its loop was closed."""
        self.loop, self._waiter, self._ended = running_loop(), None, None

    def is_first_cancellation(self) -> bool:
        """Return True for the first call, in whichever thread."""
        return self._cancellation.acquire(blocking=False)

    def take_frames(self) -> list[protocol.Frame]:
        """Remove and return the unread frames. Joins short output frames of one stream in a row."""
        frames = list[protocol.Frame]()
        while self.frames:  # another thread may append meanwhile
            frames.append(self.frames.popleft())
        if len(frames) < 2:
            return frames
        joined = list[protocol.Frame]()
        for kind, group in itertools.groupby(frames, key=_kind_to_join):
            row = list(group)
            joined += (
                row
                if kind is None
                else [protocol.Frame(kind, row[0].run, b"".join(frame.payload for frame in row))]
            )
        return joined

    async def wait(self) -> None:
        """Wait for the next `notify`. Do not call it while `frames` has unread frames."""
        self._waiter = self.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def ended(self) -> asyncio.Future[None]:
        """Return a future that is done when the last frame has arrived."""
        if self._ended is None:
            self._ended = self.loop.create_future()
            if self._has_ended:
                self._ended.set_result(None)
        return self._ended

    def notify(self, *, has_ended: bool) -> None:
        """Wake the waiting task. Safe to call on any loop."""
        if asyncio.get_running_loop() is self.loop:
            self._wake(has_ended)
        else:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                self.loop.call_soon_threadsafe(self._wake, has_ended)

    def _wake(self, has_ended: bool) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if has_ended:
            self._has_ended = True
            if self._ended is not None and not self._ended.done():
                self._ended.set_result(None)


def _kind_to_join(frame: protocol.Frame) -> int | None:
    is_output = frame.kind in (protocol.STDOUT, protocol.STDERR)
    return frame.kind if is_output and len(frame.payload) <= _MAX_JOINED_BYTES else None
