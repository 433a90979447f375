"""The process of kept boxes: one that was made, and its forks. It ends with the last of them.

It is a process in a session of its own (see setsid(2)), whose parent has ended. It has the boxes as
any program has them, and carries out what the processes ask that are attached to them: see `Relay`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from typing import Any

from ...aio.background_loop import background_loop
from ...executors.settings import from_config
from ...runtime.packets import decode_packet
from ..base import life_of
from ..sandbox import Sandbox
from .address import is_own_process
from .orders import BoxDescription, LaunchBox, RootDescription, no_such_box
from .relay import Relay

_LAST_SECONDS = 5.0  # for processes that are attached to read why a box has ended
# The parameters of executors that boxes do not have.
_NOT_OF_BOXES = (
    "functions_module", "cleanup_temp_files", "execution_policies", "save_output", "checkpoints",
    "keep_processes", "server",
)  # fmt: skip


class BoxDaemon:
    """The boxes of this process. It belongs to the background loop.

    `launch` says what the first box is. `listener` is where processes connect, the one that wants
    the box first. If that leaves before the box is started, no other process can find it: it ends.
    """

    def __init__(self, listener: socket.socket, launch: LaunchBox) -> None:
        self._listener, self._path = listener, launch.socket_path
        self._boxes = dict[str, Sandbox]()
        self._relays = dict[Relay, asyncio.Task[Any]]()
        self._has_maker = False
        self._ended = asyncio.Event()
        self._tasks = set[asyncio.Task[None]]()
        self._failure: Exception | None = None
        try:
            self.add(make_box(launch), launch.box)
        except Exception as error:  # whatever it is, the process that wants the box has to know
            self._failure = error

    def add(self, box: Sandbox, name: str) -> None:
        """Keep a box until it is gone."""
        self._boxes[name] = box
        box.id = name
        life_of(box).on_gone = lambda reason: self._on_gone(name, reason)

    async def serve(self) -> None:
        """Serve until all boxes have ended."""
        assert sys.platform != "win32"
        server = await asyncio.start_unix_server(self._on_connect, sock=self._listener)
        try:
            await self._ended.wait()
        finally:
            server.close()
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            for box in [*self._boxes.values()]:
                await box.close()
            while self._tasks:
                await asyncio.wait(self._tasks)
            if self._relays:  # so that they send the last replies
                await asyncio.wait(self._relays.values(), timeout=_LAST_SECONDS)

    async def _on_connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_maker, self._has_maker = not self._has_maker, True
        try:
            if is_own_process(writer.get_extra_info("socket")):
                await self._serve_relay(Relay(self, reader, writer))
        finally:
            writer.close()
            if is_maker:
                self._end_unstarted()

    async def _serve_relay(self, relay: Relay) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._relays[relay] = task
        try:
            await relay.serve()
        finally:
            del self._relays[relay]

    def _on_gone(self, name: str, reason: str) -> None:
        """Tell all that are attached to a box, and clean up after it."""
        box = self._boxes.pop(name)
        for relay in self._relays:
            if relay.box is box:
                relay.end(reason)
        self._close_soon(box)

    def _close_soon(self, box: Sandbox) -> None:
        task = asyncio.ensure_future(self._close(box))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _close(self, box: Sandbox) -> None:
        try:
            await box.close()
        finally:
            if not self._boxes:
                self._ended.set()

    def _end_unstarted(self) -> None:
        """End if the box is not started."""
        for box in self._boxes.values():
            if not life_of(box).is_started:
                self._close_soon(box)
        if not self._boxes and not self._tasks:
            self._ended.set()

    # what relays ask for

    def find(self, name: str) -> Sandbox:
        """Return a box. Raise `BoxGone`, or why it could not be made."""
        if self._failure is not None:
            raise self._failure
        if (box := self._boxes.get(name)) is None:
            raise no_such_box(name)
        return box

    def describe(self, box: Sandbox) -> BoxDescription:
        """Return the description of a box that is started."""
        place = box.session.place
        return BoxDescription(
            box.id,
            os.getpid(),
            json.dumps(box.session.dump_component().config),
            str(box.work_dir),
            str(place.checkpoint_dir()),
            None if place.root is None else RootDescription.of(place.root),
            place.users,
        )


def make_box(launch: LaunchBox) -> Sandbox:
    """Return the box that `launch` describes."""
    config = from_config(json.loads(launch.config))
    options = {name: value for name, value in config.items() if name not in _NOT_OF_BOXES}
    root = launch.root_source if launch.root is None else launch.root.root()
    return Sandbox(**options, idle_seconds=launch.idle_seconds, root=root, users=launch.users)


def main(descriptor: int) -> None:
    """Serve the box that standard input describes, on the listening socket `descriptor`."""
    launch = decode_packet(sys.stdin.buffer.read(), LaunchBox)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    listener = socket.socket(fileno=descriptor)

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)

    async def serve() -> None:
        await BoxDaemon(listener, launch).serve()

    background_loop().run(serve())
