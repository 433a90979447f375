"""The processes that work on the files of a box, as its first process sees them."""

from __future__ import annotations

import errno
import functools
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable

from ... import protocol
from ...box_orders import BoxAnswer, FileOrder
from ...linux import process_tree
from ...packets import decode_fields, encode_packet
from ..filesystem import describe_full
from ..poll_loop import FOREVER, PollLoop
from .confined_fork import Home, fork_confined
from .file_worker import serve_files
from .frame_link import FrameLink

_MAX_WORKERS, _MAX_IDLE = 4, 2
_LOOK = os.WEXITED | os.WNOHANG | os.WNOWAIT
_CANCEL_SECONDS = 1.0  # until a worker that does not react is killed


class FileRequest:
    """What request `number` asks for. `frames` have arrived before a worker was free."""

    def __init__(self, number: int, order: FileOrder, home: Home) -> None:
        self.number, self.path, self.home = number, order.path, home
        self.frames = [protocol.encode(protocol.BOX_REQUEST, number, encode_packet(order))]
        self.is_held = self.is_cancelled = False


class FileWorker:
    """One process, and the stream to it. It works on one request at a time."""

    def __init__(
        self,
        loop: PollLoop,
        home: Home,
        on_frame: Callable[[FileWorker, protocol.Frame], None],
        on_end: Callable[[FileWorker], None],
    ) -> None:
        self.request: FileRequest | None = None
        self.kill_at, self.is_of_other = FOREVER, bool(home.user)
        self.pid, ours = fork_confined(home, socket.SOCK_STREAM, serve_files)
        self.link = FrameLink(
            loop, ours, functools.partial(on_frame, self), functools.partial(on_end, self)
        )

    def has_ended(self) -> bool:
        """Return True if its process has ended, which may not have been handled yet."""
        try:
            return os.waitid(os.P_PID, self.pid, _LOOK) is not None
        except ChildProcessError:
            return True

    def begin(self, request: FileRequest) -> None:
        """Let it work on `request`."""
        self.request = request
        process_tree.send_signal(self.pid, signal.SIGCONT)  # also `FileWorkers.unpause`
        for frame in request.frames:
            self.link.send(frame)
        request.frames.clear()


class FileWorkers:
    """Carries out orders to files, several at once, and answers over `link`.

    A worker is confined as commands are, and they could attack it: what it sends is checked.
    """

    def __init__(self, loop: PollLoop, link: FrameLink) -> None:
        self._loop, self._link = loop, link
        self._workers: list[FileWorker] = []
        self._waiting = deque[FileRequest]()
        self._alive: dict[int, FileWorker] = {}  # by process ID, until they are reaped

    def submit(self, number: int, order: FileOrder, home: Home) -> None:
        """Carry out `order` as the user of `home`, now or when a worker is free."""
        self._assign(FileRequest(number, order, home))

    def _assign(self, request: FileRequest) -> None:
        try:
            worker = self._free_worker(request.home)
        except (OSError, MemoryError) as error:
            self._link.send(BoxAnswer.from_error(error, request.path).encode(request.number))
            return
        if worker is None:
            self._waiting.append(request)
        else:
            worker.begin(request)
            self.update_reading()

    def _free_worker(self, home: Home) -> FileWorker | None:
        """Return a worker without a request, or None if there are enough that work.

        Another user has one for each request: it may change.
        """
        for worker in self._workers:
            if worker.request is None and not home.user and not worker.has_ended():
                return worker
        if len(self._workers) >= _MAX_WORKERS + _MAX_IDLE * bool(home.user):
            return None
        worker = FileWorker(self._loop, home, self._on_worker_frame, self._on_worker_end)
        self._workers.append(worker)
        self._alive[worker.pid] = worker
        return worker

    def on_frame(self, frame: protocol.Frame) -> None:
        """Handle data for a request, or its cancellation."""
        for request in self._waiting:
            if request.number == frame.run and frame.kind == protocol.CANCEL:
                self._waiting.remove(request)
                self._fail(request, errno.ECANCELED)
                return
            if request.number == frame.run:
                request.frames.append(protocol.encode(frame.kind, frame.run, frame.payload))
                return
        for worker in self._workers:
            if (request := worker.request) is not None and request.number == frame.run:
                worker.link.send(protocol.encode(frame.kind, frame.run, frame.payload))
                if frame.kind == protocol.CANCEL:
                    request.is_cancelled, request.is_held = True, False
                    worker.kill_at = time.monotonic() + _CANCEL_SECONDS
                    self.update_reading()

    def hold(self, number: int, is_held: bool) -> None:
        """Stop reading what a request sends, or go on."""
        requests = [worker.request for worker in self._workers]
        for request in (*requests, *self._waiting):
            if request is not None and request.number == number:
                request.is_held = is_held
        self.update_reading()

    def update_reading(self) -> None:
        """Read from the workers unless they are held, or the link is full."""
        for worker in self._workers:
            is_held = worker.request is not None and worker.request.is_held
            worker.link.hold((is_held or self._link.is_full) and worker.pid in self._alive)

    def _on_worker_frame(self, worker: FileWorker, frame: protocol.Frame) -> None:
        request = worker.request
        if request is None or frame.run != request.number:
            raise protocol.ProtocolError("A worker sends what nobody has asked for.")
        if frame.kind == protocol.BOX_REPLY:
            answer = decode_fields(frame, BoxAnswer)
            if answer.errno == errno.ENOSPC:
                full = describe_full(request.home.temporary, request.path)
                answer = answer._replace(error=full or answer.error)
            self._link.send(answer.encode(frame.run))
            worker.request, worker.kill_at = None, FOREVER
            if worker.is_of_other or (self._waiting and self._waiting[0].home.user):
                self._end_worker(worker)
            else:
                self._begin_next(worker)
        elif frame.kind not in (protocol.VALUE_CHUNK, protocol.BOX_TAKEN):
            raise protocol.ProtocolError("A worker sends a frame of another kind.")
        elif not request.is_cancelled:
            self._send(frame)

    def _send(self, frame: protocol.Frame) -> None:
        self._link.send(protocol.encode(frame.kind, frame.run, frame.payload))

    def _begin_next(self, worker: FileWorker) -> None:
        if self._waiting:
            worker.begin(self._waiting.popleft())
        elif sum(other.request is None for other in self._workers) > _MAX_IDLE:
            self._workers.remove(worker)
            worker.link.close()  # it exits then
        self.update_reading()

    def _end_worker(self, worker: FileWorker) -> None:
        """Let a worker exit, and assign what waits."""
        self._workers.remove(worker)
        worker.link.close()
        self._assign_waiting()
        self.update_reading()

    def _on_worker_end(self, worker: FileWorker) -> None:
        """A worker was killed, or has sent something else than it should."""
        self._workers.remove(worker)
        if worker.pid in self._alive:
            process_tree.send_signal(worker.pid, signal.SIGKILL)
        if (request := worker.request) is not None:
            self._fail(request, errno.ECANCELED if request.is_cancelled else errno.EIO)
        self._assign_waiting()

    def _assign_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque[FileRequest]()
        for other in waiting:
            self._assign(other)

    def _fail(self, request: FileRequest, number: int) -> None:
        error = OSError(number, os.strerror(number))
        self._link.send(BoxAnswer.from_error(error, request.path).encode(request.number))

    def pids(self) -> set[int]:
        """Return the process IDs of all workers."""
        return {*self._alive}

    def on_exit(self, pid: int) -> bool:
        """Handle the end of process `pid`. Return False if it is no worker."""
        is_worker = self._alive.pop(pid, None) is not None
        if is_worker:
            self.update_reading()  # to the end of its stream, which reports it
        return is_worker

    def unpause(self) -> None:
        """Continue the workers that have a request: a command may have stopped them."""
        for worker in self._workers:
            if worker.request is not None and worker.pid in self._alive:
                process_tree.send_signal(worker.pid, signal.SIGCONT)

    def next_deadline(self) -> float:
        """Return the time at which `on_timer` must be called."""
        return min([worker.kill_at for worker in self._workers], default=FOREVER)

    def on_timer(self, now: float) -> None:
        """Kill the workers that do not react to a cancellation."""
        for worker in self._workers:
            if now >= worker.kill_at and worker.pid in self._alive:
                worker.kill_at = FOREVER
                process_tree.send_signal(worker.pid, signal.SIGKILL)

    def close(self) -> None:
        """Close the streams, which makes the workers exit."""
        for worker in self._workers:
            worker.link.close()
        self._workers.clear()
