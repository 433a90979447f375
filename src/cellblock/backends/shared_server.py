"""One warm server for all executors of this process with the same settings; each is a guest, who sees nothing of another.

The first of them starts it, and the last one ends it. What they share is a process that carries their output, and the memory
of an interpreter in which no code of theirs has run.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..environments.interpreter import Interpreter
from ..errors import BackendError, BackendLost, SandboxUnavailable
from ..limits import Limits
from ..policy import Policy
from .base import Connection, Place
from .sandbox import SandboxPlace, own_mounts, unavailable_here
from .transport import GuestLink, Link
from .warm_server import WarmServer

_MOST = 50  # guests of one server
_PATIENCE = 0.1  # seconds until the end of a server is heard of after that of one of its guests


@dataclass(frozen=True)
class SharedPlace(Place):
    """Room for one executor in a server that is there, or will be. For what is named here see `SandboxPlace`."""

    work_dir: str
    scratch: str
    interpreter: Interpreter
    packages: tuple[str, ...]
    limits: Limits
    policy: Policy
    preload: tuple[str, ...]
    delete: Sequence[str]

    async def open(self) -> Connection:
        """Move in. Raises `SandboxUnavailable` when this machine does not allow the sandbox."""
        room = SandboxPlace(self.interpreter, self.packages, self.limits, self.policy, self.preload)
        key = _key(room)
        server = _server(key)
        try:
            return await server.admit(self, room)
        except SandboxUnavailable:
            raise
        except BackendError as error:
            if not await server.is_lost():
                raise await unavailable_here(error) from error
        return await _server(key).admit(
            self, room
        )  # what made that one end, while we came, says nothing of the next


def _key(place: SandboxPlace) -> str:
    """Give what is the same for those alone who may share: all settings, and what the paths in them stand for now."""
    paths = [mount["source"] for mount in place.settings["sandbox"]["mounts"]]
    identities = [(status.st_dev, status.st_ino) for status in map(os.stat, paths)]
    # Without control groups processes are counted for each user, and guests are one user: none may use up another's.
    is_counted = place.limits.processes is not None and place.settings["groups"] is None
    alone = next(_alone) if is_counted else 0
    return json.dumps([place.settings, identities, _mounts_below(paths), alone], sort_keys=True)


def _mounts_below(paths: Iterable[str]) -> list[str]:
    """Give what is mounted below `paths`, which a server that was there before does not see; /proc/PID/mountinfo, proc(5)."""
    tops = tuple(f"{path}/" for path in paths)
    with open("/proc/self/mountinfo") as file:
        return [line for line in file if line.split(" ", 5)[4].startswith(tops)]


def _server(key: str) -> SharedServer:
    server = _servers.get(key)
    if server is None or server.has_ended or server.is_full:
        server = _servers[key] = SharedServer(key)
    return server


class SharedServer(WarmServer):
    """The server that executors with the same `key` share."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self._key = key
        self._guests = 0
        self._starting = asyncio.Lock()
        self._door: socket.socket | None = None

    @property
    def has_ended(self) -> bool:
        """Whether it has run, and does not any more."""
        return self._connection is not None and not self._connection.is_open

    @property
    def is_full(self) -> bool:
        """Whether more guests would have another server: it has one processor to carry all output."""
        return self._guests >= _MOST

    async def is_lost(self) -> bool:
        """Tell whether it has ended, perhaps a moment ago, which one of its guests may know first."""
        if not self.has_ended:
            await asyncio.sleep(_PATIENCE)
        return self.has_ended

    async def admit(self, place: SharedPlace, room: SandboxPlace) -> Connection:
        """Give an executor its connection; the first one starts the server, in `room`. Raises `BackendError`."""
        self._guests += 1
        try:
            async with self._starting:
                if self._connection is None:
                    await self._start(room)
            stream = self._knock()
        except BaseException:
            await self.release()
            raise
        guest = Guest(GuestLink(stream, self._connected().link), self)
        mounts = own_mounts(place.work_dir, place.scratch, place.policy)
        # Beside what cells are shown of the scratch folder.
        await guest.open(
            {"mounts": mounts, "delete": list(place.delete), "slates": f"{place.scratch}/slates"}
        )
        return guest

    async def _start(self, room: SandboxPlace) -> None:
        self.forget()
        self._door, room.door = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with room.door:
            await self._launch(room)

    def _knock(self) -> socket.socket:
        """Give the end of a new stream, of which the server has the other."""
        assert self._door is not None
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._door, [b"g"], [theirs.fileno()])
            except OSError as error:
                ours.close()
                raise BackendLost("The cell server ended.") from error
        return ours

    def _connected(self) -> Connection:
        assert self._connection is not None
        return self._connection

    async def release(self) -> None:
        """One of those who share it needs it no more; with the last one it ends."""
        self._guests -= 1
        if self._guests == 0:
            if _servers.get(self._key) is self:
                del _servers[self._key]
            self.forget()
            await self.close()

    def forget(self) -> None:
        """Let go of the door."""
        if self._door is not None:
            self._door.close()


class Guest(Connection):
    """One executor's stream to a server that it shares."""

    def __init__(self, link: Link, server: SharedServer) -> None:
        super().__init__(link)
        self._server = server

    async def close(self, *, keep: Sequence[str] = ()) -> None:
        """See `Connection`; what is to be deleted the server deletes only when it ends itself, should it still be there."""
        try:
            await super().close(keep=keep)
        finally:
            await self._server.release()


_servers: dict[str, SharedServer] = {}
_alone = itertools.count(1)


def _forget_all() -> None:
    # As in `places.base`: a copy of a door in a child would keep nothing alive, but is a descriptor that nobody closes.
    for server in _servers.values():
        server.forget()
    _servers.clear()


os.register_at_fork(after_in_child=_forget_all)
