"""One client of the server: its control stream, its output, and the cells that work for it."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from .. import protocol
from ..messages import Failure, KeepPaths, RunRequest, TenantSpec
from ..packets import decode_packet
from .cell import Job
from .event_loop import FOREVER, EventLoop
from .faults import OnFault, describe
from .pool import Pool

if TYPE_CHECKING:
    from .sessions.manager import SessionManager

_MAX_BACKLOG_BYTES = 32 * 1024 * 1024  # unsent output at which cells have to wait
_READ_BYTES = 1 << 16  # with more, each read would return memory to the kernel
# Seconds to collect output before sending it, because each message wakes the client.
_FLUSH_DELAY = 0.002
_FAULT_DELAY = 0.01  # seconds after a fault for which nothing in particular can be blamed


class Client:
    """A control stream, and the pool and sessions behind it, if there are any.

    `on_open` receives the client's first request, if the client must send one before others.
    `on_end` is called once, when the stream has ended.
    """

    def __init__(
        self,
        loop: EventLoop,
        control_in: int,
        control_out: int,
        decoder: protocol.Decoder,
        on_end: Callable[[Client], None],
        on_open: Callable[[Client, TenantSpec], None] | None = None,
    ) -> None:
        self._loop, self._decoder = loop, decoder
        self._control_in, self._control_out = control_in, control_out
        self._on_end, self._on_open = on_end, on_open
        self.pool: Pool | None = None
        self.sessions: SessionManager | None = None
        self.paths_to_delete: list[str] = []
        self.is_full = False
        self._paused: dict[int, int] = {}
        self._outgoing = bytearray()
        self._waits_for_room = self._is_ended = False
        self._flush_at = FOREVER
        self.rearm = loop.rearm

    def start_reading(self, frames: list[protocol.Frame]) -> None:
        """Handle `frames`, which were read already, and all that arrive from now on."""
        os.set_blocking(self._control_out, False)
        self.register(self._control_in, self._on_readable)
        for frame in frames:
            self._handle_contained(frame)
        self._loop.update_deadline(self)

    # the event loop

    def register(
        self,
        descriptor: int,
        handler: Callable[[], None],
        flags: int = select.EPOLLIN,
        on_fault: OnFault | None = None,
    ) -> None:
        """See `EventSource`."""
        self._loop.register(descriptor, handler, flags, self, on_fault)

    def unregister(self, descriptor: int, *, closing: bool = False) -> None:
        """See `EventSource`."""
        self._loop.unregister(descriptor, closing=closing)
        if self._paused:
            self._paused.pop(descriptor, None)

    def pause_reading(self, descriptor: int, flags: int) -> None:
        """See `EventSource`."""
        if descriptor not in self._paused:
            self._paused[descriptor] = flags
            self._loop.rearm(descriptor, flags | select.EPOLLET)

    def next_deadline(self) -> float:
        """See `TimerHandler`."""
        deadline = self._flush_at
        if self.pool is not None:
            deadline = min(deadline, self.pool.next_deadline())
        if self.sessions is not None:
            deadline = min(deadline, self.sessions.next_deadline())
        return deadline

    def on_timer(self) -> None:
        """See `TimerHandler`."""
        if self.pool is not None:
            self.pool.on_timer()
        if self.sessions is not None:
            self.sessions.on_timer()
        if time.monotonic() >= self._flush_at:
            self.flush()

    # output

    def send(self, frame: bytes, *, can_wait: bool = False) -> None:
        """See `FrameSender`."""
        self._outgoing += frame
        if len(self._outgoing) > _MAX_BACKLOG_BYTES:
            self.is_full = True
        if not self._waits_for_room:
            flush_at = time.monotonic() + _FLUSH_DELAY if can_wait else 0.0
            self._flush_at = min(self._flush_at, flush_at)

    def flush(self) -> None:
        """See `FrameSender`."""
        if not self._outgoing:
            return
        try:
            sent = os.write(self._control_out, self._outgoing)
        except ConnectionError:
            self._outgoing.clear()
            self._flush_at = FOREVER
            self._report_end()
            return
        except BlockingIOError:
            sent = 0
        except (OSError, MemoryError) as error:
            sent = 0
            self.on_fault(error)
        del self._outgoing[:sent]
        self._flush_at = FOREVER
        if self._outgoing or self._waits_for_room:
            self._watch_for_room(wanted=bool(self._outgoing))

    def _watch_for_room(self, *, wanted: bool) -> None:
        """Flush when the stream is writable, but only if a write was incomplete.

        Otherwise the stream is always writable, and would wake the loop after each message.
        """
        if wanted and not self._waits_for_room:
            self.register(self._control_out, self.flush, select.EPOLLOUT)
        elif not wanted:
            self.unregister(self._control_out)
        self._waits_for_room = wanted
        if self.is_full and len(self._outgoing) <= _MAX_BACKLOG_BYTES // 2:
            self._resume_reading()

    def _resume_reading(self) -> None:
        """Read the paused descriptors again, since there is room."""
        self.is_full = False
        paused, self._paused = self._paused, {}
        for descriptor, flags in paused.items():
            self._loop.rearm(descriptor, flags)
        if self.pool is not None:
            self.pool.resume()

    # requests

    def _on_readable(self) -> None:
        try:
            data = os.read(self._control_in, _READ_BYTES)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self._report_end()
            return
        for frame in self._decoder.feed(data):
            self._handle_contained(frame)

    def _handle_contained(self, frame: protocol.Frame) -> None:
        """Handle a frame. A fault ends its request, or the client if the frame names none."""
        try:
            self._handle_frame(frame)
        except protocol.ProtocolError:
            raise
        except Exception as error:
            if not frame.run:
                self.fail(describe(error))
                return
            self.send(Failure(describe(error)).encode(frame.run))
            self.flush()

    def _handle_frame(self, frame: protocol.Frame) -> None:
        match frame.kind:
            case protocol.RUN if self.pool is not None:
                request = decode_packet(frame.payload, RunRequest)
                self.pool.submit(Job(frame.run, request, time.monotonic()))
            case protocol.SESSION_REQUEST if self.sessions is not None:
                self.sessions.handle_request(frame)
            case protocol.SESSION_DATA if self.sessions is not None:
                self.sessions.send_data(frame)
            case protocol.BOX_REQUEST if self.sessions is not None:
                self.sessions.boxes.handle_request(frame)
            case protocol.BOX_DATA if self.sessions is not None:
                self.sessions.boxes.forward(frame)
            case protocol.CANCEL:
                self._cancel(frame.run)
            case protocol.PING:
                self.send(protocol.encode(protocol.PONG))
            case protocol.KEEP_PATHS:
                self._cancel_deletion(decode_packet(frame.payload, KeepPaths).paths)
            case protocol.OPEN if self._on_open is not None:
                self._on_open(self, decode_packet(frame.payload, TenantSpec))
            case _:
                raise protocol.ProtocolError(
                    f"The server cannot handle a frame of kind {frame.kind}."
                )

    def _cancel(self, number: int) -> None:
        if self.sessions is not None and self.sessions.cancel_run(number):
            return
        if self.pool is not None:
            self.pool.cancel(number)

    def _cancel_deletion(self, paths: tuple[str, ...]) -> None:
        for path in paths:
            if path in self.paths_to_delete:
                self.paths_to_delete.remove(path)

    # the end

    def on_fault(self, error: Exception) -> None:
        """See `TimerHandler`. What the system refuses is tried again, as long as that lasts."""
        if isinstance(error, OSError | MemoryError):
            time.sleep(_FAULT_DELAY)
        elif not self._is_ended:
            self.fail(describe(error))

    def end_by(self, error: Exception) -> None:
        """Report a fault that ends the client."""
        self.fail(describe(error))

    def fail(self, why: str, *, full: bool = False) -> None:
        """Report that no block can run any more because of `why`, and end the client."""
        self.send(Failure(why, full=int(full)).encode(0))
        with contextlib.suppress(OSError):
            os.write(self._control_out, self._outgoing)
        self._report_end()

    def _report_end(self) -> None:
        if not self._is_ended:
            self._is_ended = True
            for descriptor in (self._control_in, self._control_out):
                self.unregister(descriptor)
            self._on_end(self)

    def close(self) -> None:
        """Close the stream. All cells of the client must be gone."""
        self._outgoing.clear()
        self._flush_at = FOREVER
        for descriptor in (self._control_in, self._control_out):
            os.close(descriptor)
