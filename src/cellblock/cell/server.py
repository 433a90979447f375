"""The cell server: one loop that has cells forked, hands them their jobs, carries their output, and ends them.

It knows nothing of executors. It is told what to do over one pair of descriptors (`wire`), has a zygote fork the cells,
and keeps a few of them ready in advance, so that who asks waits for his code alone. When the stream that it is told by
ends, for whatever reason, it ends every cell, removes what it was told to remove, and goes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from . import kernel, tree, wire, zygote
from .cells import Cell, CellFailed, Job
from .folders import remove_tree
from .meter import Groups

_SPARES = 2  # cells ready in advance
_WARMING = 4  # cells being made at one time
_FIRST_LOOK = 0.05  # seconds until a running cell is measured for the first time; most are over by then
_NEXT_LOOK = 0.05
_GRACE = 2.0  # seconds that a cell's first process has to end the cell before it is killed itself
_BACKLOG = 32 * 1024 * 1024  # bytes of output that nobody takes, at which cells have to wait
_CREDENTIALS = struct.Struct("3i")

Enclose = Callable[[dict[str, Any], socket.socket], None]


def main(enclose: Enclose | None) -> dict[str, Any]:
    """Serve standard input and output. Returns in a cell's main process alone, with its job.

    `enclose` is called in a fresh process, to build the sandbox and start a zygote in it; without it the zygote is a fork.
    """
    control_in, control_out = _take_control()
    decoder = wire.Decoder()
    frames: list[wire.Frame] = []
    while not frames:
        data = os.read(control_in, 1 << 16)
        if not data:
            os._exit(0)
        frames = decoder.feed(data)
    spec = frames.pop(0).json()
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    launcher = os.fork()
    if launcher == 0:
        ours.close()
        os.close(control_in)
        os.close(control_out)
        return _start_zygote(enclose, spec, theirs)
    theirs.close()
    server = Server(control_in, control_out, ours, spec, decoder)
    server.run(launcher if enclose else 0, frames)
    os._exit(0)


def _take_control() -> tuple[int, int]:
    """Move the control stream away from descriptors 0 and 1, where a stray print would write into it."""
    moved = os.dup(0), os.dup(1)
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    return moved


def _start_zygote(enclose: Enclose | None, spec: dict[str, Any], link: socket.socket) -> dict[str, Any]:
    try:
        if enclose is None:
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
            return zygote.serve(link, spec["zygote"])
        enclose(spec, link)
    except BaseException as error:
        link.sendall(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
    os._exit(1)


class Server:
    """The loop and its state."""

    def __init__(
        self, control_in: int, control_out: int, link: socket.socket, spec: dict[str, Any], decoder: wire.Decoder
    ) -> None:
        self._control_in, self._control_out, self._link = control_in, control_out, link
        self._spec, self._decoder = spec, decoder
        self._namespaces = bool(spec["zygote"]["namespaces"])
        self._groups = Groups.from_spec(spec.get("groups"))
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._outgoing = bytearray()
        self._waiting: deque[Job] = deque()
        self._ready: deque[Cell] = deque()
        self._warming: set[Cell] = set()
        self._running: dict[int, Cell] = {}
        self._remains: list[Cell] = []
        self._zygote = 0
        self._count = 0
        self._failures = 0
        self._over = False
        self._strays = False

    # start and end

    def run(self, launcher: int, frames: list[wire.Frame]) -> None:
        """Serve until the control stream ends."""
        try:
            kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
            if not self._meet_zygote(launcher):
                return
            os.set_blocking(self._control_out, False)
            self._watch(self._control_in, self._on_control)
            # Every step flushes; all this does is wake the loop when the other side has read.
            self._watch(self._control_out, lambda: None, select.EPOLLOUT | select.EPOLLET)
            self._watch(self._link.fileno(), self._on_zygote_end)
            self._refill()
            for frame in frames:
                self._take(frame)
            while not self._over:
                self._step()
        finally:
            self._end()

    def _meet_zygote(self, launcher: int) -> bool:
        """Wait for the zygote's first words, and pass them on."""
        if launcher:
            _, status = os.waitpid(launcher, 0)
            if status == 0:  # it has forked the zygote; who must now be told what to be, and is our child
                self._link.sendall(init_message(self._spec["zygote"]))
        data, ancillary, _, _ = self._link.recvmsg(1 << 16, socket.CMSG_SPACE(_CREDENTIALS.size))
        try:
            news = json.loads(data)
        except ValueError:
            news = {"error": "the process that cells are forked from did not start"}
        if "error" in news:
            os.write(self._control_out, wire.encode_json(wire.FAILED, 0, news))
            return False
        self._zygote = _sender(ancillary)
        os.write(self._control_out, wire.encode_json(wire.READY, 0, news))
        return True

    def _end(self) -> None:
        cells = [*self._running.values(), *self._ready, *self._warming, *self._remains]
        for cell in cells:
            cell.stop(None)
            cell.close()
        self._link.close()
        if self._namespaces and self._zygote:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._zygote, signal.SIGKILL)  # first of its process namespace: all cells go with it
        cells = self._await_end(cells)
        for cell in cells:
            cell.kill()
        self._await_end(cells)
        self._end_strays()
        for parent in self._groups.parents:
            with contextlib.suppress(OSError):
                os.rmdir(parent)
        for path in self._spec["delete"]:
            remove_tree(path)

    def _await_end(self, cells: list[Cell]) -> list[Cell]:
        """Wait a while for cells to end; give those that have not."""
        deadline = time.monotonic() + _GRACE
        while cells and time.monotonic() < deadline:
            cells = [cell for cell in cells if not (cell.gone() and cell.remove())]
            if cells:
                time.sleep(0.001)
        return cells

    def _end_strays(self) -> None:
        """Without a process namespace: end those who lost their cell's first process and became our children."""
        deadline = time.monotonic() + _GRACE
        while tree.reap_all() and time.monotonic() < deadline:
            tree.kill_below(os.getpid())
            time.sleep(0.001)

    # the loop

    def _watch(self, descriptor: int, handler: Callable[[], None], flags: int = select.EPOLLIN) -> None:
        self._handlers[descriptor] = handler
        self._epoll.register(descriptor, flags)

    def _forget(self, descriptor: int) -> None:
        if self._handlers.pop(descriptor, None):
            self._epoll.unregister(descriptor)

    def _step(self) -> None:
        for descriptor, _ in self._epoll.poll(self._patience()):
            handler = self._handlers.get(descriptor)
            if handler:
                handler()
        now = time.monotonic()
        for cell in list(self._running.values()):
            if now >= cell.next_look:
                self._look(cell, now)
        self._remains = [cell for cell in self._remains if not cell.remove()]
        if self._strays and all(cell.pid for cell in self._warming):
            self._sweep()
        self._flush()

    def _sweep(self) -> None:
        """Without a process namespace: end what lost its cell's first process, and so became the zygote's child."""
        self._strays = False
        known = {cell.pid for cell in (*self._running.values(), *self._ready, *self._warming)}
        for pid in tree.children(self._zygote):
            if pid not in known:
                tree.kill_below(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _patience(self) -> float:
        """Seconds until something must be looked at; -1 for ever."""
        if self._remains or self._strays:
            return 0.005
        if not self._running:
            return -1
        return max(0.0, min(cell.next_look for cell in self._running.values()) - time.monotonic())

    def _send(self, frame: bytes) -> None:
        self._outgoing += frame

    def _flush(self) -> None:
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

    # what comes in

    def _on_control(self) -> None:
        try:
            data = os.read(self._control_in, 1 << 18)
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
        if frame.kind == wire.RUN:
            self._waiting.append(Job(frame.run, frame.json(), time.monotonic()))
            self._refill()
            self._dispatch()
        elif frame.kind == wire.CANCEL:
            self._cancel(frame.run)
        elif frame.kind == wire.KEEP:
            self._spec["delete"] = [path for path in self._spec["delete"] if path not in frame.json()["paths"]]
        else:
            raise wire.WireError(f"Frame of kind {frame.kind} is not for a server.")

    def _cancel(self, run: int) -> None:
        for job in self._waiting:
            if job.run == run:
                self._waiting.remove(job)
                self._send(wire.encode_json(wire.ENDED, run, job.never_started()))
                return
        if run in self._running:
            self._stop(self._running[run], "cancelled")

    def _on_zygote_end(self) -> None:
        self._send(wire.encode_json(wire.FAILED, 0, {"error": "the process that cells are forked from ended"}))
        self._flush()
        self._over = True

    # cells: made, ready, running, ended

    def _refill(self) -> None:
        wanted = len(self._waiting) + self._spec.get("spares", _SPARES)
        while len(self._warming) + len(self._ready) < wanted and len(self._warming) < _WARMING:
            self._count += 1
            cell = Cell(f"cell-{self._count}", self._spec, self._groups)
            cell.request(self._link)
            self._warming.add(cell)
            self._watch(cell.link.fileno(), functools.partial(self._on_cell, cell))

    def _on_cell(self, cell: Cell) -> None:
        try:
            ready = cell.read()
        except CellFailed as error:
            self._cell_failed(cell, str(error))
            return
        if cell.ended:
            self._finish(cell)
        elif ready:
            self._failures = 0
            self._warming.discard(cell)
            self._ready.append(cell)
            self._dispatch()
            self._refill()

    def _cell_failed(self, cell: Cell, why: str) -> None:
        """A cell could not be made. Whoever waits is told; one that fails again and again is not tried for ever."""
        self._forget(cell.link.fileno())
        self._warming.discard(cell)
        with contextlib.suppress(ValueError):
            self._ready.remove(cell)
        cell.kill()
        self._bury(cell)
        self._failures += 1
        if self._waiting:
            job = self._waiting.popleft()
            self._send(wire.encode_json(wire.FAILED, job.run, {"error": why}))
        if self._failures < 3 or self._waiting:
            self._refill()

    def _dispatch(self) -> None:
        while self._waiting and self._ready:
            self._start(self._ready.popleft(), self._waiting.popleft())

    def _start(self, cell: Cell, job: Job) -> None:
        try:
            cell.open_file(job)
        except OSError as error:
            self._ready.appendleft(cell)
            self._send(wire.encode_json(wire.FAILED, job.run, {"error": f"the output file: {error}"}))
            return
        self._send(wire.encode(wire.STARTED, job.run))
        for reader in cell.pump.pipes:
            handler = functools.partial(self._on_output, cell, reader)
            self._watch(reader, handler, select.EPOLLIN | select.EPOLLET)
        cell.start(job)
        cell.next_look = min(cell.started + _FIRST_LOOK, cell.deadline)
        self._running[job.run] = cell

    def _on_output(self, cell: Cell, reader: int) -> None:
        for stream, data in cell.pump.readable(reader):
            self._pass_on(cell, stream, data)
        if cell.pump.pipes[reader].more:
            self._epoll.modify(reader, select.EPOLLIN | select.EPOLLET)  # reports it again
        while len(self._outgoing) > _BACKLOG and not self._over:
            select.select([], [self._control_out], [], 1.0)
            self._flush()

    def _pass_on(self, cell: Cell, stream: str, data: bytes) -> None:
        cell.save(data)
        now = cell.pump.keeper.take("stdout" if stream == "stdout" else "stderr", data)
        if now:
            self._send(wire.encode(wire.STDOUT if stream == "stdout" else wire.STDERR, cell.run, now))

    def _look(self, cell: Cell, now: float) -> None:
        cell.next_look = min(now + _NEXT_LOOK, max(cell.deadline, now + 0.001))
        if cell.stopping:
            if now >= cell.stopping + _GRACE:
                cell.kill()
                cell.next_look = now + _GRACE
        elif now >= cell.deadline:
            self._stop(cell, "wall_seconds")
        elif limit := cell.exceeded():
            self._stop(cell, limit)

    def _stop(self, cell: Cell, why: str) -> None:
        cell.stop(why)
        cell.next_look = time.monotonic() + _GRACE

    def _finish(self, cell: Cell) -> None:
        """Nothing of the cell lives any more: send what is left of its output, and how it ended."""
        self._forget(cell.link.fileno())
        if cell.run not in self._running:  # it died before it had anything to do
            self._cell_failed(cell, "a cell ended before it was ready")
            return
        del self._running[cell.run]
        self._strays = cell.lost and not self._namespaces
        for reader in cell.pump.pipes:
            self._forget(reader)
        for stream, data in cell.pump.rest():
            self._pass_on(cell, stream, data)
        lost, tail = cell.pump.keeper.rest()
        if lost:
            self._send(wire.encode_json(wire.CUT, cell.run, lost))
        for stream, data in tail:
            for start in range(0, len(data), wire.MAX_FRAME):
                piece = data[start : start + wire.MAX_FRAME]
                self._send(wire.encode(wire.STDOUT if stream == "stdout" else wire.STDERR, cell.run, piece))
        self._send(wire.encode_json(wire.ENDED, cell.run, cell.ending()))
        self._bury(cell)

    def _bury(self, cell: Cell) -> None:
        cell.close()
        if not cell.remove():
            self._remains.append(cell)


def init_message(spec: dict[str, Any]) -> bytes:
    """Make the bytes that tell a zygote in a sandbox what to be."""
    text = json.dumps(spec).encode()
    return struct.pack(">I", len(text)) + text


def _sender(ancillary: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            return int(_CREDENTIALS.unpack(data[: _CREDENTIALS.size])[0])
    return 0


if sys.platform != "linux":
    raise ImportError("The cell server needs Linux.")
