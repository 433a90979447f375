"""The connection to a runtime server: start the server, send it requests, end it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import sys
import time
import weakref
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, Any

from ..aio.shielded import wait_shielded
from ..cancellation import ABANDONED_GRACE, Token, on_cancel
from ..environments.interpreter import warn_if_untested
from ..errors import (
    BackendError,
    BackendLost,
    CellblockError,
    ExecutorStopped,
    ServerFull,
)
from ..runtime import protocol
from ..runtime.box_orders import BoxAnswer, BoxOrder, HoldOutput
from ..runtime.messages import (
    Answer,
    BlockRequest,
    Failure,
    InputQuestion,
    KeepPaths,
    Ready,
    RunRequest,
    TenantSpec,
    check_reply,
)
from ..runtime.packets import decode_fields, encode_packet
from .failures import STOPPED_TEXT, end_reason, failure_error, preload_error
from .pending_run import PendingRun
from .server_process import ServerProcess
from .transport import ProcessTransport, Transport

if TYPE_CHECKING:
    from ..runtime.session_orders import SessionOrder
    from ..runtime.spec import ServerSpec

_log = logging.getLogger(__name__)
# Of one run; when more are unread, nothing is read from the server until somebody waits for a run.
_MAX_UNREAD_FRAMES = 512
_MAX_UNREAD_PIECES = 64  # of a file of a box
_START_SECONDS = 60.0  # far more than a loaded machine needs
_PING_INTERVAL, _PONG_SECONDS = 3.0, 10.0
_VALUE_CHUNK_BYTES = 1 << 20
_BOX_PIECE_BYTES = 1 << 18
_FINAL_KINDS = (protocol.ENDED, protocol.SESSION_REPLY, protocol.BOX_REPLY, protocol.FAILED)


class Connection:
    """An open connection to a runtime server.

    It belongs to the background loop: only `has_lost_server` can be called in another thread.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._loop = asyncio.get_running_loop()
        self._decoder = protocol.Decoder()
        self._runs: dict[int, PendingRun] = {}
        self._numbers = itertools.count(1)
        self._paused = False
        self._last_received = time.monotonic()
        self._opened: asyncio.Future[Ready] = self._loop.create_future()
        self._lost_reason: str | None = None
        self._was_stopped = False
        self.loss_advice = ""  # what a user can do after the loss of the server
        transport.start(self._on_data, self._on_end)
        _open_connections.add(self)

    @property
    def pid(self) -> int:
        """The process ID of the server; 0 if it does not run on this machine."""
        return self.transport.pid

    @property
    def is_open(self) -> bool:
        """Whether runs can be started: the server is alive and belongs to this process."""
        return self._lost_reason is None

    async def open(self, spec: ServerSpec | TenantSpec) -> None:
        """Send the server its specification and wait until it is ready.

        Closes the connection on failure. Raise as `Backend.open` does.
        """
        self._send(protocol.encode(protocol.OPEN, 0, encode_packet(spec)))
        await self.wait_until_ready()

    async def wait_until_ready(self) -> None:
        """Wait until the server, which has its specification, is ready. Raise as `open` does."""
        try:
            async with asyncio.timeout(_START_SECONDS):
                ready = await asyncio.shield(self._opened)
            if ready.python is not None:
                warn_if_untested(ready.python)
        except BaseException as error:
            note = self._stderr_note()
            await self.close()
            if isinstance(error, TimeoutError):
                raise BackendError(
                    f"The runtime server did not start within {_START_SECONDS:.0f} s. {note}"
                ) from error
            raise

    async def request(
        self, request: SessionOrder, value: bytes = b"", token: Token | None = None
    ) -> tuple[Answer, bytes]:
        """Send a request to a live session. Return the answer and the value that came with it.

        Raises as `run` does.
        """
        answer, chunks = Answer(), bytearray()
        async with contextlib.aclosing(self.run(request, token, value=value)) as frames:
            async for frame in frames:
                if frame.kind == protocol.SESSION_REPLY:
                    answer = decode_fields(frame, Answer)
                elif frame.kind == protocol.VALUE_CHUNK:
                    chunks += frame.payload
        return answer, bytes(chunks)

    async def run(
        self,
        request: RunRequest | SessionOrder,
        token: Token | None = None,
        *,
        value: bytes = b"",
        on_input: Callable[[InputQuestion], Coroutine[Any, Any, str]] | None = None,
    ) -> AsyncGenerator[protocol.Frame, None]:
        """Run one block and yield its frames.

        The last frame has the kind ENDED; then no process of the block is left. With an order to a
        live session, `value` is sent, and `on_input` returns the line that its code asks for.
        Closing the generator early, or cancelling its task, cancels the run and waits for its end.
        Cancelling `token` a second time kills a session's block now.

        Raise `BackendLost` if the server or the session ends, `ExecutorStopped` after `close`,
        `BackendError` if no cell could be started, and `WorkspaceError` if a file of the block
        could not be written.
        """
        kind = protocol.RUN if isinstance(request, RunRequest) else protocol.SESSION_REQUEST
        final_kind = protocol.ENDED if isinstance(request, BlockRequest) else protocol.SESSION_REPLY
        async with self._open_run(kind, encode_packet(request), final_kind, token) as run:
            for start in range(0, len(value), _VALUE_CHUNK_BYTES):
                chunk = value[start : start + _VALUE_CHUNK_BYTES]
                self._send(protocol.encode(protocol.SESSION_DATA, run.number, chunk))
            while not run.is_done:
                for frame in await self._next_frames(run):
                    if frame.kind == protocol.INPUT_REQUEST and on_input is not None:
                        question = decode_fields(frame, InputQuestion)
                        await self._send_input(run, on_input(question))
                    else:
                        yield frame

    async def run_box(
        self,
        order: BoxOrder,
        token: Token | None = None,
        *,
        data: AsyncIterable[bytes] | None = None,
    ) -> AsyncGenerator[protocol.Frame, None]:
        """Carry out an order to a box and yield its frames.

        The last frame has the kind BOX_REPLY, see `BoxAnswer`. Its `run` and that of all others is
        the number of the order, which `SignalCommand` and `HoldOutput` name. Frames before it:
        BOX_STARTED, STDOUT and STDERR of a command, VALUE_CHUNK of a file. `data` is the input of a
        command or the contents of a file, whose pieces are asked for as fast as the box takes
        them. An error that it raises is raised here.

        Closing the generator early, cancelling its task and `token` as in `run`. Raises as `run`.
        """
        packet = encode_packet(order)
        async with self._open_run(protocol.BOX_REQUEST, packet, protocol.BOX_REPLY, token) as run:
            run.box_session = order.session
            sending = None if data is None else asyncio.create_task(self._send_data(run, data))
            try:
                while not run.is_done:
                    for frame in await self._next_frames(run):
                        yield frame
            finally:
                if sending is not None:
                    sending.cancel()

    async def ask_box(self, order: BoxOrder, token: Token | None = None) -> tuple[BoxAnswer, bytes]:
        """Carry out an order to a box. Return the answer and the bytes of VALUE_CHUNK before it.

        Raises as `run` does.
        """
        answer, chunks = BoxAnswer(), bytearray()
        async with contextlib.aclosing(self.run_box(order, token)) as frames:
            async for frame in frames:
                if frame.kind == protocol.BOX_REPLY:
                    answer = decode_fields(frame, BoxAnswer)
                elif frame.kind == protocol.VALUE_CHUNK:
                    chunks += frame.payload
        return answer, bytes(chunks)

    @contextlib.asynccontextmanager
    async def _open_run(
        self, kind: int, packet: bytes, final_kind: int, token: Token | None
    ) -> AsyncGenerator[PendingRun, None]:
        """Send a request. At the end, cancel it unless it is done, and wait for its end."""
        number = next(self._numbers)
        message = protocol.encode(kind, number, packet)
        run = PendingRun(number, final_kind)
        self.check_open()
        self._runs[number] = run
        try:
            self._send(message)
            calls = itertools.count()

            def cancel() -> None:
                # Whoever cancels a task often cancels its token too: that is one cancellation.
                if next(calls) or run.is_first_cancellation():
                    self._send(protocol.encode(protocol.CANCEL, number))

            with on_cancel(token, self._loop, cancel, repeats=True):
                try:
                    yield run
                finally:
                    if not run.is_done and self.is_open:
                        await self._abandon(run)
        finally:
            del self._runs[number]

    async def _abandon(self, run: PendingRun) -> None:
        """Cancel a run and wait for its end. Kill it if that takes long: nobody else might."""
        message = protocol.encode(protocol.CANCEL, run.number)
        if run.is_first_cancellation():
            self._send(message)
        run.discard_frames = True
        self._resume_reading()
        timer = self._loop.call_later(ABANDONED_GRACE, self._send, message)
        try:
            await wait_shielded(run.ended())
        finally:
            timer.cancel()

    async def _send_data(self, run: PendingRun, data: AsyncIterable[bytes]) -> None:
        """Send the input of a command, or the contents of a file, as fast as the box takes it."""
        try:
            async for piece in data:
                for start in range(0, len(piece), _BOX_PIECE_BYTES):
                    await run.data_window.acquire()
                    part = piece[start : start + _BOX_PIECE_BYTES]
                    self._send(protocol.encode(protocol.BOX_DATA, run.number, part))
            self._send(protocol.encode(protocol.BOX_DATA, run.number))
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            if not isinstance(error, Exception):  # raised here, it would end more than this run
                error = RuntimeError(f"What makes the data has raised {error!r}.")
            run.data_error = error
            run.notify(has_ended=False)

    async def _send_input(self, run: PendingRun, line: Coroutine[Any, Any, str]) -> None:
        """Send the line that the code asked for, unless the run ends first."""
        reading = asyncio.ensure_future(line)
        try:
            await asyncio.wait({reading, run.ended()}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                data = reading.result().encode(errors="replace")
                self._send(protocol.encode(protocol.SESSION_DATA, run.number, data))
        finally:
            reading.cancel()

    async def _next_frames(self, run: PendingRun) -> list[protocol.Frame]:
        while not run.frames and self._lost_reason is None and run.data_error is None:
            self._resume_reading()
            await run.wait()
        if run.data_error is not None:
            raise run.data_error
        frames = run.take_frames()
        self._hold_or_release(run)
        self._resume_reading()
        for frame in frames:
            if frame.kind == protocol.FAILED:
                run.is_done = True
                raise failure_error(decode_fields(frame, Failure), self.loss_advice)
            run.is_done = run.is_done or frame.kind in _FINAL_KINDS
        if not frames:
            run.is_done = True
            raise self._end_error()
        return frames

    def check_open(self) -> None:
        """Raise an error if the server has ended or belongs to another process.

        The error is `ExecutorStopped` after `close`, and otherwise `BackendLost`.
        """
        if self._lost_reason is not None:
            raise self._end_error()

    def _end_error(self) -> BackendError:
        if self._was_stopped:
            return ExecutorStopped(STOPPED_TEXT)
        return BackendLost(f"{self._lost_reason} {self.loss_advice}".strip())

    def has_lost_server(self) -> bool:
        """Return True if the server has ended without being stopped."""
        return not self._was_stopped and (not self.is_open or self.transport.has_ended())

    async def monitor(self) -> None:
        """Ping the server while something runs, and mark it as lost if it does not reply.

        Returns when the connection is no longer open.
        """
        while self.is_open:
            await asyncio.sleep(_PING_INTERVAL)
            if not self._runs or self._paused:
                continue
            sent = time.monotonic()
            self._send(protocol.encode(protocol.PING))
            await asyncio.sleep(_PONG_SECONDS)
            if self._last_received < sent and not self._paused:
                self._mark_lost(f"The runtime server did not answer for {_PONG_SECONDS:.0f} s.")

    # what the transport receives

    def _send(self, data: bytes) -> None:
        if self._lost_reason is None:
            self.transport.send(data)

    def _on_end(self) -> None:
        self._mark_lost(f"The runtime server ended unexpectedly. {self._stderr_note()}")

    def _on_data(self, data: bytes) -> None:
        self._last_received = time.monotonic()
        try:
            for frame in self._decoder.feed(data):
                check_reply(frame)
                if frame.run:
                    self._handle_run_frame(frame)
                else:
                    self._handle_server_frame(frame)
        except protocol.ProtocolError as error:
            self._mark_lost(f"The runtime server sent an invalid message: {error}")

    def _handle_server_frame(self, frame: protocol.Frame) -> None:
        if frame.kind == protocol.READY:
            if self._opened.done():
                raise protocol.ProtocolError("It reported a second time that it is ready.")
            self._opened.set_result(decode_fields(frame, Ready))
        elif frame.kind == protocol.FAILED:
            failure = decode_fields(frame, Failure)
            reason = end_reason(failure)
            error = preload_error(failure) if failure.module else None
            self._mark_lost(reason, ServerFull(reason) if failure.full else error)

    def _handle_run_frame(self, frame: protocol.Frame) -> None:
        run = self._runs.get(frame.run)
        if run is None or run.is_complete:
            return
        if frame.kind == protocol.BOX_TAKEN:
            run.data_window.release()
            return
        is_final = frame.kind in _FINAL_KINDS
        if is_final and frame.kind not in (run.final_kind, protocol.FAILED):
            raise protocol.ProtocolError(
                f"A frame of kind {frame.kind} instead of {run.final_kind} ended a run."
            )
        run.is_complete = is_final
        if not run.discard_frames:
            run.frames.append(frame)
        run.notify(has_ended=is_final)
        if frame.kind == protocol.VALUE_CHUNK:
            self._hold_or_release(run)
        is_full = len(run.frames) >= _MAX_UNREAD_FRAMES and not self._paused
        if is_full and not any(other.is_awaited for other in self._runs.values()):
            self._paused = True
            self.transport.pause_reading()

    def _hold_or_release(self, run: PendingRun) -> None:
        """Let a box wait with the contents of a file while many of its pieces are unread."""
        must_hold = len(run.frames) >= _MAX_UNREAD_PIECES
        if run.box_session is not None and run.is_held != must_hold and not run.is_complete:
            run.is_held = must_hold
            packet = encode_packet(HoldOutput(run.box_session, run.number, must_hold))
            self._send(protocol.encode(protocol.BOX_REQUEST, next(self._numbers), packet))

    def _resume_reading(self) -> None:
        if self._paused and self._lost_reason is None:
            self._paused = False
            self.transport.resume_reading()

    def _mark_lost(self, reason: str, error: CellblockError | None = None) -> None:
        """Notify all runs that the server has ended. A pending `open` raises `error` if given."""
        if self._lost_reason is not None:
            return
        self._lost_reason = reason
        if not self._was_stopped:
            _log.info("the runtime server (process %d) was lost: %s", self.pid, reason)
        self.transport.detach()
        if not self._opened.done():
            self._opened.set_exception(error or BackendError(reason))
        for run in list(self._runs.values()):
            run.notify(has_ended=True)

    def _stderr_note(self) -> str:
        text = self.transport.stderr_tail()
        return f"It wrote: {text}" if text else ""

    async def close(self, *, keep: Sequence[str] = ()) -> None:
        """End the server and all its cells, and wait until they are gone.

        `keep` names paths that the server must not delete although its specification says so.
        """
        _open_connections.discard(self)
        if keep:
            self._send(
                protocol.encode(protocol.KEEP_PATHS, 0, encode_packet(KeepPaths(tuple(keep))))
            )
        self._was_stopped = self.is_open
        self._mark_lost(STOPPED_TEXT)
        if self._opened.done():
            self._opened.exception()  # so that asyncio does not log it as never retrieved
        await self.transport.close()

    def close_in_child(self) -> None:
        """Close the parent's stream in a forked child."""
        if self.loss_advice:  # a box gives its own
            self.loss_advice = "Create one in this process."
        self._lost_reason = "This executor was started in another process."
        self.transport.close_in_child()


_open_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def _close_all_in_child() -> None:
    # A copy of the stream in a child would keep the server alive after the parent's death.
    for connection in list(_open_connections):
        connection.close_in_child()
    _open_connections.clear()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_close_all_in_child)


async def start_server(
    program: str,
    spec: ServerSpec | TenantSpec,
    *,
    python: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Connection:
    """Start a runtime server as a process of this machine and open the connection to it.

    `program` is a program of `runtime.bootstrap`. `environment` None means the environment of this
    process. Raise as `Backend.open` does.
    """
    return await open_server(ProcessTransport(ServerProcess(program, python, environment)), spec)


async def open_server(transport: Transport, spec: ServerSpec | TenantSpec) -> Connection:
    """Open a connection over `transport`; end the server on failure.

    Raises as `Backend.open` does.
    """
    connection = Connection(transport)
    await connection.open(spec)
    return connection
