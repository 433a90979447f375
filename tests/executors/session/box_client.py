"""BoxClient: orders to the box of a session, with synchronous methods, for tests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Any, NamedTuple

from cellblock.backends.connection import Connection
from cellblock.cancellation import Token
from cellblock.runtime import protocol
from cellblock.runtime.box_orders import (
    BoxAnswer,
    BoxOrder,
    CommandStarted,
    ListCommands,
    RunCommand,
)
from cellblock.runtime.packets import decode_fields
from tests.executors.session.live_session import LiveSession, run_async


class CommandRun(NamedTuple):
    """What a command did."""

    answer: BoxAnswer
    stdout: bytes
    stderr: bytes
    pid: int


async def pieces(data: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Yield each of `data`."""
    for piece in data:
        yield piece


class BoxClient:
    """The box of a running session."""

    def __init__(self, live: LiveSession) -> None:
        self.live = live

    @property
    def connection(self) -> Connection:
        """The connection to its server."""
        return self.live.executor.place.require_connection()

    @property
    def number(self) -> int:
        """The number of its session."""
        place: Any = self.live.executor.place
        return place.session.number

    async def start(
        self,
        *argv: str,
        data: AsyncIterable[bytes] | None = None,
        token: Token | None = None,
        on_frame: Callable[[protocol.Frame], object] = lambda _frame: None,
        **options: Any,
    ) -> CommandRun:
        """Run a command, and return what it did. `options` are fields of `RunCommand`."""
        order = RunCommand(self.number, argv, reads_input=data is not None, **options)
        answer, outputs, pid = BoxAnswer(), {protocol.STDOUT: b"", protocol.STDERR: b""}, 0
        async with contextlib.aclosing(self.connection.run_box(order, token, data=data)) as frames:
            async for frame in frames:
                on_frame(frame)
                if frame.kind in outputs:
                    outputs[frame.kind] += frame.payload
                elif frame.kind == protocol.BOX_STARTED:
                    pid = decode_fields(frame, CommandStarted).pid
                elif frame.kind == protocol.BOX_REPLY:
                    answer = decode_fields(frame, BoxAnswer)
        return CommandRun(answer, outputs[protocol.STDOUT], outputs[protocol.STDERR], pid)

    async def begin(
        self,
        *argv: str,
        kind: int = protocol.STDOUT,
        on_frame: Callable[[protocol.Frame], object] = lambda _frame: None,
        **options: Any,
    ) -> tuple[asyncio.Task[CommandRun], int]:
        """Start a command, wait for its first frame of `kind`, and return its task and number."""
        number = asyncio.get_running_loop().create_future()

        def watch(frame: protocol.Frame) -> None:
            on_frame(frame)
            if frame.kind == kind and not number.done():
                number.set_result(frame.run)

        task = asyncio.create_task(self.start(*argv, on_frame=watch, **options))
        await asyncio.wait([task, number], return_when="FIRST_COMPLETED")
        return task, number.result()

    async def listed(self) -> list[str]:
        """Return the command lines of the processes of commands."""
        answer, _ = await self.connection.ask_box(ListCommands(self.number))
        return sorted(process.text for process in answer.processes or ())

    def left(self) -> list[str]:
        """Return what `listed` does."""
        return run_async(self.listed())

    def run(self, *argv: str, **options: Any) -> CommandRun:
        """Run a command. See `start`."""
        return run_async(self.start(*argv, **options))

    def shell(self, text: str, **options: Any) -> CommandRun:
        """Run a text of the shell."""
        return self.run("sh", "-c", text, **options)

    def output_of(self, text: str, **options: Any) -> str:
        """Run a text of the shell, check that it succeeds, and return what it writes."""
        done = self.shell(text, **options)
        assert (done.answer.exit, done.stderr) == (0, b""), done
        return done.stdout.decode().strip()

    def ask(self, kind: type[Any], *fields: Any, **options: Any) -> BoxAnswer:
        """Give another order, and return the answer."""
        return self.ask_with_data(kind(self.number, *fields, **options))[0]

    def ask_with_data(self, order: BoxOrder) -> tuple[BoxAnswer, bytes]:
        """Give an order, and return the answer, and the bytes that came with it."""
        return run_async(self.connection.ask_box(order))
