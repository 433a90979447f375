"""One run of a connection, as the task that waits for it sees it."""

from __future__ import annotations

import asyncio
import itertools

from ..runtime import protocol

_MAX_UNTAKEN_PIECES = 2
_MAX_JOINED_BYTES = 4096  # of one frame; longer ones gain nothing from being joined


class PendingRun:
    """The unread frames of one run.

    number        that of its frames
    final_kind    the kind of its last frame, unless that is FAILED
    is_complete   its last frame has been received, but maybe not been read
    data_window   how many pieces of data can be sent before the box has taken an earlier one
    box_session   the session of its box; None if it is no order to a box
    is_held       the box was told to wait with the next piece of a file
    data_error    what has failed while its data was made
    """

    def __init__(self, number: int, final_kind: int) -> None:
        self.number, self.final_kind, self.is_complete = number, final_kind, False
        self.frames = list[protocol.Frame]()
        self.is_done = False
        self.discard_frames = False
        self.box_session: int | None = None
        self.is_held = False
        self._waiter: asyncio.Future[None] | None = None
        self._has_ended = False
        self._ended: asyncio.Future[None] | None = None  # created on demand; few runs need it
        self._was_cancelled = False
        self.data_window = asyncio.Semaphore(_MAX_UNTAKEN_PIECES)
        self.data_error: Exception | None = None

    def is_first_cancellation(self) -> bool:
        """Return True for the first call."""
        was_cancelled, self._was_cancelled = self._was_cancelled, True
        return not was_cancelled

    def take_frames(self) -> list[protocol.Frame]:
        """Remove and return the unread frames. Joins short output frames of one stream in a row."""
        frames, self.frames = self.frames, []
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

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for the next frame, or, after giving it up, for the last."""
        is_read = self._waiter is not None and not self._waiter.done()
        return is_read or (self.discard_frames and not self.is_complete)

    async def wait(self) -> None:
        """Wait for the next `notify`. Do not call it while `frames` has unread frames."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def ended(self) -> asyncio.Future[None]:
        """Return a future that is done when the last frame has arrived."""
        if self._ended is None:
            self._ended = asyncio.get_running_loop().create_future()
            if self._has_ended:
                self._ended.set_result(None)
        return self._ended

    def notify(self, *, has_ended: bool) -> None:
        """Wake the waiting task."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if has_ended:
            self._has_ended = True
            if self._ended is not None and not self._ended.done():
                self._ended.set_result(None)


def _kind_to_join(frame: protocol.Frame) -> int | None:
    is_output = frame.kind in (protocol.STDOUT, protocol.STDERR)
    return frame.kind if is_output and len(frame.payload) <= _MAX_JOINED_BYTES else None
