"""The cell server: one loop that has cells forked, hands them their jobs, carries their output, and ends them.

It knows nothing of executors. It is told what to do over one pair of descriptors (`wire`), has a zygote fork the cells,
and keeps a few of them ready in advance, so that who asks waits for his code alone. When the stream that it is told by
ends, for whatever reason, it ends every cell, removes what it was told to remove, and goes.

In a sandbox it has guests, each with a stream, folders and a network of his own; see `guests`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

from .. import protocol
from ..linux import process_tree
from ..linux.credentials import ROOM, sender
from ..linux.rmtree import remove_tree
from .cgroups import Groups
from .client import Client
from .event_loop import Loop
from .pool import Pool

if TYPE_CHECKING:
    from .tenants import Guests

LEASE = 5  # seconds until a container goes whose owner is gone: if only the way to us broke, it is restarted by then
_GRACE = 2.0  # seconds that the end of all may take
_DESCRIPTORS = 1024  # more than a server has open


class Server:
    """Whoever started it, on one side, and the zygote on the other."""

    def __init__(
        self,
        control_in: int,
        control_out: int,
        link: socket.socket,
        porter: socket.socket | None,
        door: socket.socket | None,
        spec: dict[str, Any],
        decoder: protocol.Decoder,
    ) -> None:
        self._link, self._porter, self._door, self._spec = link, porter, door, spec
        self._loop = Loop()
        self._groups = Groups([], [])
        self._owner = Client(self._loop, control_in, control_out, decoder, self._on_end)
        self._owner.delete = spec["delete"]
        self._guests: Guests | None = None
        self._over = False

    def run(self, launcher: int, frames: list[protocol.Frame]) -> None:
        """Serve until the control stream ends."""
        try:
            if self._begin(launcher):
                self._owner.serve(frames)
                while not self._over:
                    self._loop.turn()
        finally:
            self._close()

    def _close(self) -> None:
        if self._owner.sessions is not None:
            self._owner.sessions.close()
        if self._guests is not None:
            self._guests.close()
        if self._owner.pool is not None:
            self._owner.pool.close()
        _end_children()
        self._groups.remove()
        for path in self._owner.delete:
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
            else:
                self._furnish(zygote)
        failed = "error" in news
        self._owner.send(
            protocol.encode_json(protocol.FAILED if failed else protocol.READY, 0, news)
        )
        self._owner.flush()
        return not failed

    def _meet_zygote(self, launcher: int) -> tuple[int, dict[str, Any]]:
        """Wait for the zygote's first words, and give its process id with them; 0 when it did not start."""
        if launcher:
            _, status = os.waitpid(launcher, 0)
            if (
                status == 0
            ):  # it has forked the zygote; who must now be told what to be, and is our child
                self._link.sendall(init_message(self._spec["zygote"]))
        data, ancillary, _, _ = self._link.recvmsg(1 << 16, ROOM)
        try:
            news = json.loads(data)
        except ValueError:
            news = {"error": "the process that cells are forked from did not start"}
        return (0 if "error" in news else sender(ancillary)), news

    def _furnish(self, zygote: int) -> None:
        """Make what the owner has behind his stream."""
        owner = self._owner
        owner.watch(self._link.fileno(), self._on_zygote_end)
        if self._door is not None:
            from .tenants import Guests  # not for those who have none

            assert self._porter is not None
            self._guests = Guests(
                self._loop,
                owner,
                self._door,
                self._link,
                zygote,
                self._porter,
                self._spec,
                self._groups,
            )
            return
        owner.pool = Pool(owner, self._link, zygote, self._spec, self._groups)
        if self._spec.get("sessions"):
            from .sessions.manager import Sessions  # not for those who have none

            owner.sessions = Sessions(owner, owner.pool, self._link, self._porter, self._spec)
        if size := self._spec.get("reserve_bytes"):
            from .oom_reserve import Reserve  # for containers alone

            Reserve(owner, size)

    def _on_zygote_end(self) -> None:
        self._owner.fail("the process that cells are forked from ended")

    def _on_end(self, _owner: Client) -> None:
        self._over = True


def _end_children() -> None:
    """End what is left below us: who lost his cell's first process, or brought us what we need."""
    deadline = time.monotonic() + _GRACE
    while process_tree.reap_all() and time.monotonic() < deadline:
        process_tree.kill_below(os.getpid())
        time.sleep(0.001)


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
