"""The cell server: one loop that has cells forked, hands them their jobs, carries their output, and ends them.

It knows nothing of executors. It is told what to do over one pair of descriptors (`wire`), has a zygote fork the cells,
and keeps a few of them ready in advance, so that who asks waits for his code alone. When the stream that it is told by
ends, for whatever reason, it ends every cell, removes what it was told to remove, and goes.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import wire
from .cells import Job
from .folders import remove_tree
from .groups import Groups
from .pool import Pool

if TYPE_CHECKING:
    from .sessions import Sessions

_BACKLOG = 32 * 1024 * 1024  # bytes of output that nobody takes, at which cells have to wait
_READ = 1 << 16  # more would make each read give memory back to the kernel
_MOMENT = 0.002  # seconds that output waits for more, or for the end of its block: each message costs its reader a turn
LEASE = 5  # seconds until a container goes whose owner is gone: if only the way to us broke, it is restarted by then
_DESCRIPTORS = 1024  # more than a server has open
_FOREVER = float("inf")
_CREDENTIALS = struct.Struct("3i")


class Server:
    """The loop: the control stream on one side, the cells on the other."""

    def __init__(
        self,
        control_in: int,
        control_out: int,
        link: socket.socket,
        porter: socket.socket | None,
        spec: dict[str, Any],
        decoder: wire.Decoder,
    ) -> None:
        self._control_in, self._control_out, self._link, self._porter = control_in, control_out, link, porter
        self._spec, self._decoder = spec, decoder
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._outgoing = bytearray()
        self._groups = Groups([], [])
        self._pool = Pool(self, link, 0, spec, self._groups)
        self._sessions: Sessions | None = None
        self._flush_at = self._due = _FOREVER
        self._over = False

    def run(self, launcher: int, frames: list[wire.Frame]) -> None:
        """Serve until the control stream ends."""
        try:
            if not self._begin(launcher):
                return
            if self._spec.get("sessions"):
                self._sessions = _sessions(self, self._pool, self._link, self._porter, self._spec)
            if size := self._spec.get("reserve_bytes"):
                _reserve(self, size)
            os.set_blocking(self._control_out, False)
            self.watch(self._control_in, self._on_control)
            self.watch(self._link.fileno(), self._on_zygote_end)
            for frame in frames:
                self._take(frame)
            while not self._over:
                self._step()
        finally:
            if self._sessions is not None:
                self._sessions.close()
            self._pool.close()
            self._groups.remove()
            for path in self._spec["delete"]:
                remove_tree(path)
            if pid := self._spec.get("ends"):
                _end_later(pid)

    def _begin(self, launcher: int) -> bool:
        """Get all that cells need, and say so; or why it cannot be had."""
        zygote, news = self._meet_zygote(launcher)
        if zygote:
            try:
                self._groups = Groups.make(self._spec.get("groups"))
            except OSError as error:
                news = {"error": f"control groups cannot be made: {error}"}
            self._pool = Pool(self, self._link, zygote, self._spec, self._groups)
        failed = "error" in news
        os.write(self._control_out, wire.encode_json(wire.FAILED if failed else wire.READY, 0, news))
        return not failed

    def _meet_zygote(self, launcher: int) -> tuple[int, dict[str, Any]]:
        """Wait for the zygote's first words, and give its process id with them; 0 when it did not start."""
        if launcher:
            _, status = os.waitpid(launcher, 0)
            if status == 0:  # it has forked the zygote; who must now be told what to be, and is our child
                self._link.sendall(init_message(self._spec["zygote"]))
        data, ancillary, _, _ = self._link.recvmsg(1 << 16, socket.CMSG_SPACE(_CREDENTIALS.size))
        try:
            news = json.loads(data)
        except ValueError:
            news = {"error": "the process that cells are forked from did not start"}
        return (0 if "error" in news else _sender(ancillary)), news

    # the loop

    def watch(self, descriptor: int, handler: Callable[[], None], flags: int = select.EPOLLIN) -> None:
        """Have `handler` called when `descriptor` can be read."""
        self._handlers[descriptor] = handler
        self._epoll.register(descriptor, flags)

    def again(self, descriptor: int, flags: int) -> None:
        """Have an edge-triggered `descriptor` reported once more if it still holds something."""
        self._epoll.modify(descriptor, flags)

    def forget(self, descriptor: int, *, is_to_be_closed: bool = False) -> None:
        """Watch `descriptor` no more; where it is closed at once, the kernel need not be told."""
        if self._handlers.pop(descriptor, None) and not is_to_be_closed:
            self._epoll.unregister(descriptor)

    def _step(self) -> None:
        patience = self._patience()
        if patience >= 0:
            self._due = min(self._due, time.monotonic() + patience)
        for descriptor, _ in self._epoll.poll(patience):
            handler = self._handlers.get(descriptor)
            if handler:
                handler()
        if time.monotonic() >= self._due:
            self._due = _FOREVER
            self._pool.tend()
            if self._sessions is not None:
                self._sessions.tend()
        if time.monotonic() >= self._flush_at:
            self.flush()

    def _patience(self) -> float:
        patience = self._pool.patience()
        if self._sessions is not None and (moment := self._sessions.patience()) < _FOREVER:
            wait = max(0.0, moment - time.monotonic())
            patience = wait if patience < 0 else min(wait, patience)
        if not 0 < self._flush_at < _FOREVER:  # what could not be sent at once waits for the other side to read
            return patience
        moment = max(0.0, self._flush_at - time.monotonic())
        return moment if patience < 0 else min(moment, patience)

    def send(self, frame: bytes, *, can_wait: bool = False) -> None:
        """Send `frame` out, or a moment later with what follows; waits, and cells with us, when too much was not taken."""
        self._outgoing += frame
        self._flush_at = min(self._flush_at, time.monotonic() + _MOMENT) if can_wait else 0.0
        while len(self._outgoing) > _BACKLOG and not self._over:
            select.select([], [self._control_out], [], 1.0)
            self.flush()

    def flush(self) -> None:
        """Give what was sent to the other side, as far as it takes it now."""
        if not self._outgoing:
            return
        try:
            sent = os.write(self._control_out, self._outgoing)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._over = True
            return
        del self._outgoing[:sent]
        self._flush_at = 0.0 if self._outgoing else _FOREVER
        if self._outgoing or self._control_out in self._handlers:
            self._watch_for_room(wanted=bool(self._outgoing))

    def _watch_for_room(self, *, wanted: bool) -> None:
        """Flush when the other side has read; where it keeps up, that would wake us after each message for nothing."""
        if wanted and self._control_out not in self._handlers:
            self.watch(self._control_out, self.flush, select.EPOLLOUT)
        elif not wanted and self._control_out in self._handlers:
            self.forget(self._control_out)

    # what comes in

    def _on_control(self) -> None:
        try:
            data = os.read(self._control_in, _READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._over = True
            return
        for frame in self._decoder.feed(data):
            self._take(frame)

    def _take(self, frame: wire.Frame) -> None:
        match frame.kind:
            case wire.RUN:
                self._pool.add(Job(frame.run, frame.json(), time.monotonic()))
            case wire.ASK if self._sessions is not None:
                self._sessions.take(frame, frame.json())
            case wire.DATA if self._sessions is not None:
                self._sessions.data(frame)
            case wire.CANCEL:
                if self._sessions is None or not self._sessions.cancel(frame.run):
                    self._pool.cancel(frame.run)
            case wire.PING:
                self.send(wire.encode(wire.PONG))
            case wire.KEEP:
                kept = frame.json()["paths"]
                self._spec["delete"] = [path for path in self._spec["delete"] if path not in kept]
            case _:
                raise wire.WireError(f"Frame of kind {frame.kind} is not for a server.")

    def _on_zygote_end(self) -> None:
        self.send(wire.encode_json(wire.FAILED, 0, {"error": "the process that cells are forked from ended"}))
        self.flush()
        self._over = True


def _sessions(
    server: Server, pool: Pool, link: socket.socket, porter: socket.socket | None, spec: dict[str, Any]
) -> Sessions:
    from .sessions import Sessions  # not for those who have none

    return Sessions(server, pool, link, porter, spec)


def _reserve(server: Server, size: int) -> None:
    from .reserve import Reserve  # for containers alone

    Reserve(server, size)


def _end_later(pid: int) -> None:
    """End process `pid` after a while, and not if all is begun again meanwhile; without anybody waiting for that."""
    if os.fork() == 0:
        os.closerange(0, _DESCRIPTORS)
        time.sleep(LEASE)
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGTERM)
        os._exit(0)


def init_message(spec: dict[str, Any]) -> bytes:
    """Make the bytes that tell a zygote in a sandbox what to be."""
    text = json.dumps(spec).encode()
    return struct.pack(">I", len(text)) + text


def _sender(ancillary: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            return int(_CREDENTIALS.unpack(data[: _CREDENTIALS.size])[0])
    return 0
