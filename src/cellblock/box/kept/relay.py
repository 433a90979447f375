"""Relay: what one process that is attached to a box asks of it, and the replies.

Orders to the box and to its session are passed on, with other numbers, and their frames are passed
back: see `Connection`. The process of the box carries out the others: see `orders`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Protocol

from ...aio.shielded import run_to_end
from ...cancellation import CancellationToken
from ...errors import BackendLost, BoxGone, CheckpointError, ExecutorStopped, ServerFull
from ...executors.session.checkpoint import Checkpoint
from ...runtime import protocol
from ...runtime.box_orders import (
    BOX_ORDERS,
    BoxOrder,
    HoldOutput,
    RunCommand,
    SignalCommand,
    WriteFile,
)
from ...runtime.messages import Answer, Failure, InputQuestion, Ready, RunCode, RunProgram
from ...runtime.packets import decode_packet, encode_packet
from ...runtime.session_orders import (
    CompleteCode,
    GetVariable,
    ListVariables,
    SetVariable,
)
from ..base import life_of
from ..life import BoxLink
from ..sandbox import Sandbox
from .orders import (
    KEPT_ORDERS,
    AttachBox,
    BoxDescription,
    CheckpointDescription,
    CloseBox,
    DeleteCheckpoint,
    ForkBox,
    KeptOrder,
    KeptReply,
    ListCheckpoints,
    RestoreCheckpoint,
    SaveCheckpoint,
)

RelayedOrder = RunCode | RunProgram | GetVariable | SetVariable | ListVariables | CompleteCode
_RELAYED = (RunCode, RunProgram, GetVariable, SetVariable, ListVariables, CompleteCode)
_READ_BYTES = 1 << 16
_MAX_UNSENT_BYTES = 1 << 20  # at which a command has to wait
_CLOSED = "The box was closed by another process that was attached to it."


class Boxes(Protocol):
    """The boxes of this process."""

    def find(self, name: str) -> Sandbox:
        """Return a box. Raise `BoxGone`."""
        ...

    def add(self, box: Sandbox, name: str) -> None:
        """Keep a box until it is gone."""

    def describe(self, box: Sandbox) -> BoxDescription:
        """Return the description of a box that is started."""
        ...


class _Run:
    """An order that is carried out.

    number   that of its frames here, and `inner_number` to the runtime server
    data     what was received for it
    """

    def __init__(self, number: int) -> None:
        self.number, self.inner_number = number, 0
        self.token = CancellationToken()
        self.data = asyncio.Queue[bytes]()


class Relay:
    """One connection. `box` is what it is attached to."""

    def __init__(
        self, boxes: Boxes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._boxes, self._reader, self._writer = boxes, reader, writer
        self.box: Sandbox | None = None
        self._runs = dict[int, _Run]()
        self._tasks = set[asyncio.Task[None]]()
        writer.transport.set_write_buffer_limits(high=_MAX_UNSENT_BYTES)

    async def serve(self) -> None:
        """Serve until the stream ends. What still runs is cancelled then."""
        decoder = protocol.Decoder()
        try:
            while data := await self._reader.read(_READ_BYTES):
                for frame in decoder.feed(data):
                    self._handle(frame)
        except (OSError, protocol.ProtocolError):
            pass
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            self._writer.close()

    def end(self, reason: str) -> None:
        """Report that the box is gone, and end."""
        self._send(Failure(reason, stopped=1).encode(0))
        self.box = None
        self._writer.close()

    def _send(self, data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(data)

    # requests

    def _handle(self, frame: protocol.Frame) -> None:
        run = self._runs.get(frame.run)
        match frame.kind:
            case protocol.OPEN:
                self._send(Ready().encode(0))
            case protocol.PING:
                self._send(protocol.encode(protocol.PONG))
            case protocol.BOX_REQUEST:
                order: BoxOrder = decode_packet(frame.payload, *BOX_ORDERS)
                self._start(frame.run, functools.partial(self._relay_to_box, order=order))
            case protocol.SESSION_REQUEST:
                asked: RelayedOrder | KeptOrder
                asked = decode_packet(frame.payload, *_RELAYED, *KEPT_ORDERS)
                if isinstance(asked, KeptOrder):
                    self._start(frame.run, functools.partial(self._reply, order=asked))
                else:
                    self._start(frame.run, functools.partial(self._relay_to_session, order=asked))
            case protocol.CANCEL if run is not None:
                run.token.cancel()
            case protocol.BOX_DATA | protocol.SESSION_DATA if run is not None:
                run.data.put_nowait(frame.payload)
            case _:
                pass  # it belongs to an order that is done

    def _start(self, number: int, work: Callable[[_Run], Coroutine[Any, Any, None]]) -> None:
        run = self._runs[number] = _Run(number)
        task = asyncio.ensure_future(self._carry_out(run, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(
        self, run: _Run, work: Callable[[_Run], Coroutine[Any, Any, None]]
    ) -> None:
        try:
            await work(run)
        except BaseException as error:  # whatever it is, the process at the other end must know
            self._send(_failure(error).encode(run.number))
            if not isinstance(error, Exception):
                raise
        finally:
            del self._runs[run.number]

    def _require_box(self) -> Sandbox:
        if self.box is None:
            raise BoxGone("This connection has no box.")
        return self.box

    # orders to a box

    async def _relay_to_box(self, run: _Run, order: BoxOrder) -> None:
        async with life_of(self._require_box()).use() as link:
            order = order._replace(session=link.session)
            if isinstance(order, SignalCommand | HoldOutput):
                command = self._runs.get(order.command)
                order = order._replace(command=0 if command is None else command.inner_number)
            has_data = isinstance(order, WriteFile) or (
                isinstance(order, RunCommand) and order.reads_input
            )
            data = self._pieces(run) if has_data else None
            frames = link.connection.run_box(order, run.token, data=data)
            async with contextlib.aclosing(frames):
                async for frame in frames:
                    run.inner_number = frame.run
                    self._send(protocol.encode(frame.kind, run.number, frame.payload))
                    await self._wait_for_reader(run, link)

    async def _pieces(self, run: _Run) -> AsyncGenerator[bytes, None]:
        while piece := await run.data.get():
            yield piece
            self._send(protocol.encode(protocol.BOX_TAKEN, run.number))

    async def _wait_for_reader(self, run: _Run, link: BoxLink) -> None:
        """Let a command, or the contents of a file, wait for a slow reader."""
        if self._writer.transport.get_write_buffer_size() <= _MAX_UNSENT_BYTES:
            return
        hold = HoldOutput(link.session, run.inner_number, is_held=True)
        await link.connection.ask_box(hold)
        try:
            await self._writer.drain()
        finally:
            await link.connection.ask_box(hold._replace(is_held=False))

    # orders to a session

    async def _relay_to_session(self, run: _Run, order: RelayedOrder) -> None:
        value = bytearray()
        while isinstance(order, SetVariable) and len(value) < order.size:
            value += await run.data.get()
        box = self._require_box()

        async def on_input(question: InputQuestion) -> str:
            self._send(question.encode(run.number))
            return (await run.data.get()).decode(errors="replace")

        async with life_of(box).use():
            frames = box.session.relay(order, run.token, value=bytes(value), on_input=on_input)
            async with contextlib.aclosing(frames):
                async for frame in frames:
                    self._send(protocol.encode(frame.kind, run.number, frame.payload))
                    await self._writer.drain()

    # orders to this process

    async def _reply(self, run: _Run, order: KeptOrder) -> None:
        try:
            if isinstance(order, AttachBox):
                reply = await self._attach(run, order)
            else:
                reply = await run_to_end(self._carry_out_here(run, order))
        except Exception as error:
            reply = KeptReply.from_error(error)
        self._send(protocol.encode(protocol.VALUE_CHUNK, run.number, encode_packet(reply)))
        self._send(Answer().encode(run.number))

    async def _attach(self, run: _Run, order: AttachBox) -> KeptReply:
        task = asyncio.current_task()
        assert task is not None
        run.token.link_future(task)  # a start can take long
        box = self._boxes.find(order.box)
        await box.start()
        self.box = box
        return KeptReply(boxes=(self._boxes.describe(box),))

    async def _carry_out_here(self, run: _Run, order: KeptOrder) -> KeptReply:
        box = self._require_box()
        if isinstance(order, CloseBox):
            self.box = None
            await life_of(box).close(_CLOSED)
            return KeptReply()
        async with life_of(box).use():
            match order:
                case SaveCheckpoint(name, lifetime, replace, size):
                    made = await box.session.checkpoint(
                        name, lifetime_seconds=lifetime, replace=replace, max_copied_bytes=size
                    )
                    return KeptReply(checkpoints=(CheckpointDescription.of(made),))
                case RestoreCheckpoint(name, key):
                    await box.session.restore(_find(box, name, key))
                case DeleteCheckpoint(name, key):
                    if not key or name in {each.name for each in box.checkpoints}:
                        await box.session.drop(_find(box, name, key))
                case ForkBox():
                    return await self._fork(run, box, order)
                case ListCheckpoints() | AttachBox():
                    found = tuple(map(CheckpointDescription.of, box.checkpoints))
                    return KeptReply(checkpoints=found)
        return KeptReply()

    async def _fork(self, run: _Run, box: Sandbox, order: ForkBox) -> KeptReply:
        checkpoint = None if order.name is None else _find(box, order.name, order.key)
        forks = await box.fork(
            order.copies,
            checkpoint=checkpoint,
            end_commands=False,
            max_copied_bytes=order.max_copied_bytes,
        )
        if run.token.is_cancelled() or self._writer.is_closing():
            for fork in forks:
                await fork.close()
            return KeptReply()
        for fork in forks:
            self._boxes.add(fork, fork.id)
        return KeptReply(boxes=tuple(map(self._boxes.describe, forks)))


def _find(box: Sandbox, name: str, key: str) -> Checkpoint | str:
    """Return a checkpoint by its name, or by its key. Raise `CheckpointError`."""
    if not key:
        return name
    for checkpoint in box.checkpoints:
        if checkpoint.key == key:
            return checkpoint
    raise CheckpointError(
        "The checkpoint was dropped, has expired or belongs to another session. "
        "Use one of session.checkpoints."
    )


def _failure(error: BaseException) -> Failure:
    match error:
        case ExecutorStopped():
            return Failure(str(error), stopped=1)
        case ServerFull():
            return Failure(str(error), full=1)
        case BackendLost():
            return Failure(str(error), lost=1)
        case _:
            return Failure(str(error) or type(error).__name__)
