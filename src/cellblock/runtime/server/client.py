"""One who uses the server: the stream that tells what to do, what goes back over it, and the cells that are his."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import protocol
from ..linux import files
from .cell import Job
from .event_loop import FOREVER, Loop
from .pool import Pool

if TYPE_CHECKING:
    from .sessions.manager import Sessions

_BACKLOG = 32 * 1024 * 1024  # bytes of output that nobody takes, at which his cells have to wait
_READ = 1 << 16  # more would make each read give memory back to the kernel
_MOMENT = 0.002  # seconds that output waits for more, or for the end of its block: each message costs its reader a turn
_MANY = 4  # blocks that wait for a cell, at which whatever is sent can wait for longer: who is answered asks behind them
_BUSY_MOMENT = 0.032
_PAUSE = 0.003  # seconds from an answer to the next question: in a row, what is to be done between them is waited for as well


class Post:
    """Clients with answers that wait to go out. They go together: many have one reader, who need wake up once then."""

    def __init__(self) -> None:
        self.waiting = set[Client]()

    def flush(self) -> None:
        """Send what all of them have."""
        for client in list(self.waiting):
            client.flush()


class Client:
    """A control stream, and the pool and the sessions behind it, if he has any.

    `on_open` gets what he asks for first, where he does; `on_end` is called once, when the stream has ended; `post` is for
    all who use the server.
    """

    def __init__(
        self,
        loop: Loop,
        control_in: int,
        control_out: int,
        decoder: protocol.Decoder,
        on_end: Callable[[Client], None],
        on_open: Callable[[Client, dict[str, Any]], None] | None = None,
        post: Post | None = None,
    ) -> None:
        self._loop, self._control_in, self._control_out, self._decoder = (
            loop,
            control_in,
            control_out,
            decoder,
        )
        self._on_end, self._on_open, self._post = on_end, on_open, post or Post()
        self.pool: Pool | None = None
        self.sessions: Sessions | None = None
        self.delete: list[str] = []
        self.write = files.write_at  # how the files of his blocks are written
        self.is_full = False
        self._held: dict[int, int] = {}
        self._outgoing = bytearray()
        self._answers = self._backlog = (
            0  # how many answers wait to go out, and how many blocks for a cell, when last told
        )
        self._waits_for_room = self._has_ended = False
        self._flush_at = FOREVER
        self._answered, self._after_pause = (
            0.0,
            False,
        )  # when he was last; whether what he asked now came a while later
        self.again = loop.again

    def serve(self, frames: list[protocol.Frame]) -> None:
        """Take in `frames`, which have come already, and whatever comes from now on."""
        os.set_blocking(self._control_out, False)
        self.watch(self._control_in, self._on_control)
        for frame in frames:
            self._take(frame)
        self._loop.note(self)

    # the loop, for what is his

    def watch(
        self, descriptor: int, handler: Callable[[], None], flags: int = select.EPOLLIN
    ) -> None:
        """Have `handler` called when `descriptor` can be read."""
        self._loop.watch(descriptor, handler, flags, self)

    def forget(self, descriptor: int, *, is_to_be_closed: bool = False) -> None:
        """Watch `descriptor` no more; where it is closed at once, the kernel need not be told."""
        self._loop.forget(descriptor, is_to_be_closed=is_to_be_closed)
        if self._held:
            self._held.pop(descriptor, None)

    def hold(self, descriptor: int, flags: int) -> None:
        """While `is_full`: report `descriptor`, which is not read now, when there is room again."""
        if descriptor not in self._held:
            self._held[descriptor] = flags
            self._loop.again(descriptor, flags | select.EPOLLET)

    def moment(self) -> float:
        """Give when `tend` must be called."""
        moment = self._flush_at
        if self.pool is not None:
            moment = min(moment, self.pool.moment())
        if self.sessions is not None:
            moment = min(moment, self.sessions.patience())
        return moment

    def tend(self) -> None:
        """Do what is due."""
        if self.pool is not None:
            self.pool.tend()
        if self.sessions is not None:
            self.sessions.tend()
        if time.monotonic() >= self._flush_at:
            self.flush()

    # what goes out

    def send(self, frame: bytes, *, can_wait: bool = False) -> None:
        """Send `frame` out, or a moment later with what follows."""
        self._outgoing += frame
        if len(self._outgoing) > _BACKLOG:
            self.is_full = True
        if not self._waits_for_room:
            self._flush_at = min(self._flush_at, self._next_moment()) if can_wait else 0.0

    def answer(self, frame: bytes, backlog: int) -> None:
        """Send the last frame of a block or question while `backlog` blocks wait for a cell.

        At once, or together with other answers: with never so many that cells could run out of blocks meanwhile.
        """
        self._backlog = backlog
        self._answers += 1
        self.send(frame, can_wait=True)
        self._post.waiting.add(self)
        if self._answers < backlog:
            return
        self._post.flush()
        if not backlog and self._after_pause:
            os.sched_yield()  # who has waited for it goes before what is to be done for the next
        self._answered = time.monotonic()

    def _next_moment(self) -> float:
        """Give when what can wait is sent: where many blocks wait, on all streams at once, since many have one reader."""
        now = time.monotonic()
        return now + _MOMENT if self._backlog < _MANY else (now // _BUSY_MOMENT + 1) * _BUSY_MOMENT

    def flush(self) -> None:
        """Give what was sent to the other side, as far as it takes it now."""
        self._answers = 0
        self._post.waiting.discard(self)
        if not self._outgoing:
            return
        try:
            sent = os.write(self._control_out, self._outgoing)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._outgoing.clear()
            self._flush_at = FOREVER
            self._end()
            return
        del self._outgoing[:sent]
        self._flush_at = FOREVER
        if self._outgoing or self._waits_for_room:
            self._watch_for_room(wanted=bool(self._outgoing))

    def _watch_for_room(self, *, wanted: bool) -> None:
        """Flush when the other side has read; where it keeps up, that would wake us after each message for nothing."""
        if wanted and not self._waits_for_room:
            self.watch(self._control_out, self.flush, select.EPOLLOUT)
        elif not wanted:
            self.forget(self._control_out)
        self._waits_for_room = wanted
        if self.is_full and len(self._outgoing) <= _BACKLOG // 2:
            self._go_on()

    def _go_on(self) -> None:
        """There is room again: read what was held up."""
        self.is_full = False
        held, self._held = self._held, {}
        for descriptor, flags in held.items():
            self._loop.again(descriptor, flags)
        if self.pool is not None:
            self.pool.go_on()

    # what comes in

    def _on_control(self) -> None:
        try:
            data = os.read(self._control_in, _READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end()
            return
        self._after_pause = time.monotonic() > self._answered + _PAUSE
        for frame in self._decoder.feed(data):
            self._take(frame)

    def _take(self, frame: protocol.Frame) -> None:
        match frame.kind:
            case protocol.RUN if self.pool is not None:
                self.pool.add(Job(frame.run, frame.json(), time.monotonic(), self.write))
            case protocol.ASK if self.sessions is not None:
                self.sessions.take(frame, frame.json())
            case protocol.DATA if self.sessions is not None:
                self.sessions.data(frame)
            case protocol.CANCEL:
                self._cancel(frame.run)
            case protocol.PING:
                self.send(protocol.encode(protocol.PONG))
            case protocol.KEEP:
                self._keep(frame.json()["paths"])
            case protocol.OPEN if self._on_open is not None:
                self._on_open(self, frame.json())
            case _:
                raise protocol.WireError(f"Frame of kind {frame.kind} is not for a server.")

    def _cancel(self, number: int) -> None:
        if self.sessions is not None and self.sessions.cancel(number):
            return
        if self.pool is not None:
            self.pool.cancel(number)

    def _keep(self, paths: list[str]) -> None:
        for path in paths:
            if path in self.delete:
                self.delete.remove(path)

    # the end

    def fail(self, why: str) -> None:
        """Say that there will be no cells any more."""
        self.send(protocol.encode_json(protocol.FAILED, 0, {"error": why}))
        self.flush()
        self._end()

    def _end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            for descriptor in (self._control_in, self._control_out):
                self.forget(descriptor)
            self._on_end(self)

    def close(self) -> None:
        """Hang up, once all of his cells are gone."""
        self._outgoing.clear()
        self._flush_at = FOREVER
        for descriptor in (self._control_in, self._control_out):
            os.close(descriptor)
