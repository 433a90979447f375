"""The output of a session, assigned to its blocks.

Output between two blocks is kept for the next one.
"""

from __future__ import annotations

import functools

from ... import protocol
from ...output_limit import OutputLimit
from ..cell import Run
from ..interfaces import FrameSender
from ..output import forward_output, send_tail
from ..pipes import OutputPipes
from ..pool import EDGE_TRIGGERED
from .request import SessionRequest


class SessionOutput:
    """The two output pipes of a session, and the run that their output belongs to, if any."""

    def __init__(self, loop: FrameSender, max_bytes: int | None) -> None:
        self._loop, self._max_bytes = loop, max_bytes
        self._pipes = OutputPipes(max_bytes)
        self._run: Run | None = None
        try:
            for reader in self._pipes.readers:
                loop.register(reader, functools.partial(self._on_output, reader), EDGE_TRIGGERED)
        except BaseException:
            self.close()
            raise

    @property
    def writers(self) -> list[int]:
        """The writing ends, stdout first."""
        return self._pipes.writers

    def begin_block(self, run: Run) -> None:
        """Assign the output to `run` from now on, with what was written since the last block."""
        self._run = run
        before = self._pipes.limit
        if not before.is_empty:
            self._pipes.limit = OutputLimit(self._max_bytes)
            for stream, data in before.pending():
                forward_output(self._loop, run, self._pipes.limit, stream, data)

    def end_block(self, run: Run) -> None:
        """Send the rest of the block's output."""
        self.send_written(run)
        send_tail(self._loop, run, self._pipes.limit)
        self._pipes.limit, self._run = OutputLimit(self._max_bytes), None

    def send_written(self, run: Run) -> None:
        """Send what the block has written so far."""
        for stream, data in self._pipes.read_current():
            forward_output(self._loop, run, self._pipes.limit, stream, data)

    def forward(self, request: SessionRequest, frame: protocol.Frame) -> None:
        """Send a display, a piece of a value, or a request for input."""
        is_display = frame.kind == protocol.DISPLAY
        if is_display or frame.kind == protocol.INPUT_REQUEST:
            self.send_written(request.run)  # what was written before it
        if frame.kind == protocol.INPUT_REQUEST:
            request.start_input()
        self._loop.send(protocol.encode(frame.kind, frame.run, frame.payload), can_wait=is_display)
        if not is_display:
            self._loop.flush()

    def discard_unsent(self) -> None:
        """Discard the output since the last block, because the state that wrote it is given up."""
        self._pipes.read_current()
        self._pipes.limit = OutputLimit(self._max_bytes)

    def _on_output(self, reader: int) -> None:
        if self._loop.is_full:
            self._loop.pause_reading(reader, EDGE_TRIGGERED)
            return
        for stream, data in self._pipes.read(reader):
            if self._run is not None:
                forward_output(self._loop, self._run, self._pipes.limit, stream, data)
            else:
                self._pipes.limit.add_pending(stream, data)
        if self._pipes.readers[reader].has_more:
            self._loop.rearm(reader, EDGE_TRIGGERED)

    def close(self) -> None:
        """Close the pipes."""
        for reader in self._pipes.readers:
            self._loop.unregister(reader)
        self._pipes.close()
