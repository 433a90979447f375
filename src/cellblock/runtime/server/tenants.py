"""Guests of a server: each with a stream, folders and a network of his own, and with cells that see nothing of another's.

They share the server and the memory of the first zygote. Each has a zygote that is a fork of it, in mount and network
namespaces of its own: what comes in over the door is a stream, over which the guest names his folders, and then his blocks.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import time
from typing import Any

from .. import protocol
from ..cell import init
from ..linux.credentials import ROOM, ask_for_sender, sender
from .cgroups import Groups
from .client import Client, Post
from .event_loop import FOREVER, Loop
from .file_reuse import Slates
from .mount_client import Porter
from .pool import Pool
from .scheduler import Crowd

_SOON = 0.005  # seconds until the next look whether all of one who leaves is gone
_END = 10.0  # seconds that the end of all may take; killed with their process namespace, cells are gone in milliseconds


class Guests:
    """All of them. `zygote` is the process of the first zygote, `link` the socket to it; the door is the `owner`'s."""

    def __init__(
        self,
        loop: Loop,
        owner: Client,
        door: socket.socket,
        link: socket.socket,
        zygote: int,
        porter: socket.socket,
        spec: dict[str, Any],
        groups: Groups,
    ) -> None:
        self._loop, self._owner, self._door = loop, owner, door
        self._link, self._zygote, self._spec, self._groups = link, zygote, spec, groups
        self._porter = Porter(owner, porter)
        self._clients = set[Client]()
        self._leaving = set[Client]()
        self._crowd, self._post = Crowd(), Post()
        self._count = 0
        owner.watch(door.fileno(), self._on_knock)

    def _on_knock(self) -> None:
        data, received, _, _ = socket.recv_fds(self._door, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if not data:
            self._owner.forget(self._door.fileno())
            return
        if not received:  # no descriptor was left for it; who knocked sees its other end closed
            return
        stream = received[0]
        client = Client(
            self._loop,
            stream,
            os.dup(stream),
            protocol.Decoder(),
            self._on_end,
            self._on_open,
            self._post,
        )
        self._clients.add(client)
        client.serve([])

    def _on_open(self, client: Client, request: dict[str, Any]) -> None:
        client.delete += request["delete"]
        client.write = Slates(request["slates"]).write
        targets = [mount["target"] for mount in request["mounts"]]
        self._porter.fetch(request["mounts"], functools.partial(self._on_fetched, client, targets))

    def _on_fetched(
        self, client: Client, targets: list[str], mounts: list[int], error: str
    ) -> None:
        if error:
            client.fail(error)
        elif self._is_here(client):
            self._ask_for_zygote(client, targets, mounts)
        for mount in mounts:
            os.close(mount)

    def _ask_for_zygote(self, client: Client, targets: list[str], mounts: list[int]) -> None:
        ours, theirs = socket.socketpair()
        ask_for_sender(ours)
        text = json.dumps(targets).encode()
        socket.send_fds(ours, [len(text).to_bytes(4, "big") + text], mounts)
        socket.send_fds(self._link, [init.ZYGOTE], [theirs.fileno()])
        theirs.close()
        client.watch(ours.fileno(), functools.partial(self._on_zygote, client, ours))

    def _on_zygote(self, client: Client, link: socket.socket) -> None:
        """The zygote of `client` has moved in, or could not, or has ended."""
        if client.pool is not None:
            client.fail("the process that cells are forked from ended")
            return
        try:
            data, ancillary, _, _ = link.recvmsg(init.PACKET, ROOM)
        except OSError:
            data, ancillary = b"", []
        if data == init.HELLO and self._is_here(client):
            self._count += 1
            name = f"guest-{self._count}-"
            client.pool = Pool(
                client, link, sender(ancillary), self._spec, self._groups, name, self._crowd
            )
            client.send(protocol.encode_json(protocol.READY, 0, {}))
            client.flush()
            return
        client.forget(link.fileno())
        link.close()
        client.fail(
            data[1:].decode(errors="replace")
            or "the process that cells are forked from did not start"
        )

    def _is_here(self, client: Client) -> bool:
        return client in self._clients and client not in self._leaving

    # the end

    def _on_end(self, client: Client) -> None:
        if client.pool is not None:
            client.pool.end()
        self._leaving.add(client)
        self._loop.note(self)

    def moment(self) -> float:
        """Give when `tend` must be called."""
        return time.monotonic() + _SOON if self._leaving else FOREVER

    def tend(self) -> None:
        """Hang up on those of whom nothing is left: that is how they know."""
        for client in [
            client for client in self._leaving if client.pool is None or client.pool.is_over()
        ]:
            self._leaving.remove(client)
            self._clients.remove(client)
            self._loop.drop(client)
            self._inherit(client)
            client.close()

    def _inherit(self, client: Client) -> None:
        """Note what `client` left to be deleted at the end: mostly nothing, since who is gone takes his folders away."""
        self._owner.delete = [
            path for path in (*self._owner.delete, *client.delete) if os.path.lexists(path)
        ]

    def close(self) -> None:
        """End all of them, and all that they have."""
        for client in self._clients - self._leaving:
            self._on_end(client)
        with contextlib.suppress(ProcessLookupError):
            os.kill(
                self._zygote, signal.SIGKILL
            )  # first of its process namespace: all zygotes and cells go with it
        deadline = time.monotonic() + _END
        while self._leaving and time.monotonic() < deadline:
            self.tend()
            time.sleep(0.001)
        self._porter.close()
        for client in self._clients:
            self._inherit(client)
