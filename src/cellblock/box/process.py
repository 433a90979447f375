"""Process: a command that runs on between calls."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal as signals
from collections import deque
from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import Self

from ..aio.background_loop import LoopEnded, background_loop
from ..aio.shielded import run_to_end
from ..runtime import protocol
from ..runtime.box_orders import (
    BoxAnswer,
    BoxOrder,
    CommandStarted,
    HoldOutput,
    RunCommand,
    SignalCommand,
)
from ..runtime.packets import decode_fields
from .arguments import check_data, check_seconds
from .life import BoxLife, check_box_answer
from .output import STREAMS, KeptOutput, Piece
from .results import CommandResult

_MAX_UNREAD_BYTES = 1 << 18  # at which the command has to wait

_KILLED = BoxAnswer(exit=128 + 9)


class RunningCommand:
    """A command with live input, or that given as `data`. It belongs to the background loop.

    Its output is read at once. While much of it waits for its reader, the command waits too.

    pid       its process ID in the box
    answer    how it has ended; None if it runs, or if that is not known
    is_done   it has ended, or the box is gone
    """

    def __init__(
        self,
        life: BoxLife,
        order: RunCommand,
        max_bytes: int | None,
        *,
        data: bytes | None = None,
        is_counted: bool = True,
    ) -> None:
        self.pid = 0
        self.answer: BoxAnswer | None = None
        self._life, self._order, self._is_counted = life, order, is_counted
        self._error: BaseException | None = None
        self._number = 0
        self.is_done = False
        self._input = deque[bytes]() if data is None else deque([data])
        self._is_input_closed = data is not None
        self._pieces = deque[Piece]()
        self._unread_bytes, self._is_held = 0, False
        self._reader_count = 0
        self._kept = KeptOutput(max_bytes)
        self._changed = asyncio.Event()
        self._tasks = set[asyncio.Task[object]]()
        self._running = asyncio.create_task(self._run())

    # frames

    async def _run(self) -> None:
        try:
            async with self._life.use(is_counted=self._is_counted) as link:
                pieces = self._input_pieces() if self._order.reads_input else None
                frames = link.frames(self._order, pieces)
                async with contextlib.aclosing(frames):
                    async for frame in frames:
                        self._take(frame)
        except asyncio.CancelledError:
            self.answer = self.answer or _KILLED
        except BaseException as error:
            self._error = error
        finally:
            self.is_done = True
            self._notify()

    def _take(self, frame: protocol.Frame) -> None:
        self._number = frame.run
        if frame.kind == protocol.BOX_STARTED:
            self.pid = decode_fields(frame, CommandStarted).pid
        elif frame.kind == protocol.BOX_REPLY:
            self.answer = decode_fields(frame, BoxAnswer)
        elif stream := STREAMS.get(frame.kind):
            self._pieces.append((stream, frame.payload))
            self._unread_bytes += len(frame.payload)
            self._hold_or_release()
        self._notify()

    def _hold_or_release(self) -> None:
        """Let the command wait while too much of its output is unread."""
        must_hold = self._unread_bytes > _MAX_UNREAD_BYTES
        can_release = self._unread_bytes <= _MAX_UNREAD_BYTES // 2
        if self.answer is None and (can_release if self._is_held else must_hold):
            self._is_held = not self._is_held
            self._send(HoldOutput(0, self._number, self._is_held))

    def _send(self, order: BoxOrder) -> None:
        """Send an order about this command. Its answer says nothing."""
        task = asyncio.create_task(self._ask(order))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, order: BoxOrder) -> None:
        with contextlib.suppress(OSError):  # it has ended, or the box is gone
            await self._life.ask(order)

    async def _input_pieces(self) -> AsyncGenerator[bytes, None]:
        while True:
            await self._until(lambda: bool(self._input) or self._is_input_closed)
            if not self._input:
                return
            yield self._input.popleft()
            self._notify()

    # waiting

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

    def _raise_loss(self) -> None:
        if self._error is not None:
            raise self._error

    # what callers ask for

    async def start(self) -> None:
        """Wait until the program was started. Raise as `Box.exec` does if that fails."""
        try:
            await self._until(lambda: self.pid > 0 or self.is_done)
        except BaseException:
            await self.end()
            raise
        self._raise_loss()
        if self.answer is not None:
            check_box_answer(self.answer)

    async def send(self, data: bytes) -> None:
        """Send input, and wait until it is under way. Raise `BrokenPipeError` after the end."""
        if self.is_done or self._is_input_closed:
            self._raise_loss()
            raise BrokenPipeError(errno.EPIPE, "The input of the process is closed")
        self._input.append(data)
        self._notify()
        await self._until(lambda: not self._input or self.is_done)

    def close_input(self) -> None:
        """Let the command read the end of its input."""
        self._is_input_closed = True
        self._notify()

    async def signal(self, number: int) -> None:
        """Send a signal to the process group of the command, if it runs."""
        if not self.is_done:
            await self._ask(SignalCommand(0, self._number, number))

    async def next_piece(self) -> Piece | None:
        """Return the next output. None: it has ended."""
        await self._until(lambda: bool(self._pieces) or self.is_done)
        if not self._pieces:
            self._raise_loss()
            return None
        piece = self._pieces.popleft()
        self._unread_bytes -= len(piece[1])
        self._hold_or_release()
        return piece

    async def count_reader(self, change: int) -> None:
        """Count those who read the output: `wait` leaves it to them."""
        self._reader_count += change
        self._notify()

    async def wait(self) -> CommandResult:
        """Wait for the end, and keep the output that nobody else reads."""
        while True:
            while self._pieces and not self._reader_count:
                if (piece := await self.next_piece()) is not None:
                    self._kept.add(*piece)
            if self.answer is not None:
                return self._kept.result(self.answer)
            self._raise_loss()
            await self._changed.wait()

    async def end(self) -> None:
        """Kill the command with its children, and wait for that."""
        self._running.cancel()
        await run_to_end(asyncio.wait([self._running]))


class Process:
    """A command that runs while its caller does other things. `Box.spawn` starts it.

    `async for stream, data in process` yields what it writes to stream 1 and 2. As long as more
    than 256 KiB are unread, the command waits, but nothing else in the box. `wait` reads the rest.
    `async with` kills it at the end.

    pid   its process ID in the box
    """

    def __init__(self, command: RunningCommand) -> None:
        self._command = command
        self.pid = command.pid

    async def send(self, data: bytes | str) -> None:
        """Write to its standard input. Raise `BrokenPipeError` if it has ended."""
        checked = check_data("data", data)
        if checked is None:
            raise ValueError("data must be bytes or a text, not None.")
        await background_loop().call(self._command.send(checked))

    async def close_stdin(self) -> None:
        """Let it read the end of its input."""

        async def close() -> None:
            self._command.close_input()

        await background_loop().call(close())

    async def kill(self, signal: int = 9) -> None:
        """Send a signal to its process group. Do nothing if it has ended."""
        if signal not in signals.valid_signals():
            raise ValueError(f"{signal!r} is not a signal.")
        await background_loop().call(self._command.signal(int(signal)))

    async def wait(self, timeout: float | None = None) -> CommandResult:  # noqa: ASYNC109 - the name that `subprocess` has
        """Wait until it has ended, and return its result.

        The output of the result is what was not read by iterating. Raise `TimeoutError` after
        `timeout` seconds; it runs on, and nothing of its output is lost.
        """
        seconds = check_seconds(timeout)

        async def wait() -> CommandResult:
            limit = asyncio.timeout(seconds)
            try:
                async with limit:
                    return await self._command.wait()
            except TimeoutError as error:
                if not limit.expired():
                    raise
                text = f"Process {self.pid} has not ended within {seconds:g} s. It runs on."
                raise TimeoutError(text) from error

        return await background_loop().call(wait())

    def poll(self) -> int | None:
        """Return its exit code, or None while it runs."""
        answer = self._command.answer
        return None if answer is None else answer.exit

    async def __aiter__(self) -> AsyncGenerator[Piece, None]:
        call, command = background_loop().call, self._command
        await call(command.count_reader(1))
        try:
            while (piece := await call(command.next_piece())) is not None:
                yield piece
        finally:
            await call(command.count_reader(-1))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(LoopEnded):  # a further cancellation must not prevent it
            await run_to_end(background_loop().call(self._command.end()))
