"""The tenants of a server: clients that share it, but see nothing of one another.

They share the server and the memory of the first zygote. Each tenant has a stream, which arrives at
the listener, and a zygote of its own: a fork of the first one in new mount and network namespaces.
Over its stream a tenant first names its folders, and then sends its blocks.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import time
from collections.abc import Sequence

from .. import handshake, protocol
from ..linux.credentials import CREDENTIALS_SPACE, enable_credentials, sender_pid
from ..linux.retry import receive
from ..messages import MountFolders, MountSpec, Ready, TenantSpec
from ..packets import encode_packet
from ..spec import ServerSpec
from . import descriptors
from .cgroups import CellCgroups
from .client import Client
from .event_loop import FOREVER, EventLoop
from .faults import DESCRIPTOR_LIMIT, run_contained
from .mount_client import MountClient
from .pool import Pool
from .scheduler import Scheduler
from .storage import WritableFolders, mounted_folders

_REAP_INTERVAL = 0.005  # seconds between checks whether the cells of a leaving tenant are gone
_CLOSE_TIMEOUT = (
    10.0  # seconds; cells are gone milliseconds after their process namespace is killed
)


class Tenants:
    """Accept tenants. `zygote_pid` and `zygote_socket` are those of the first zygote."""

    def __init__(
        self,
        loop: EventLoop,
        control_client: Client,
        listener: socket.socket,
        zygote_socket: socket.socket,
        zygote_pid: int,
        mount_socket: socket.socket,
        spec: ServerSpec,
        cgroups: CellCgroups,
    ) -> None:
        self._loop, self._control_client, self._listener = loop, control_client, listener
        self._zygote_socket, self._zygote_pid = zygote_socket, zygote_pid
        self._spec, self._cgroups = spec, cgroups
        self._mount_client = MountClient(control_client, mount_socket)
        self._clients = set[Client]()
        self._leaving = set[Client]()
        self._folders = dict[Client, WritableFolders]()  # of those whose zygote is not ready
        self._scheduler = Scheduler()
        self._count = 0
        control_client.register(listener.fileno(), self._on_connect)

    def _on_connect(self) -> None:
        try:
            data, received, _, _ = socket.recv_fds(self._listener, 1, 1, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            data, received = b"", list[int]()
        if not data:
            self._control_client.unregister(self._listener.fileno())
            return
        if not received:  # too many open files: the tenant sees the other end of its stream closed
            return
        stream = received[0]
        try:
            copy = os.dup(stream)
        except OSError:
            os.close(stream)
            return
        client = Client(
            self._loop,
            stream,
            copy,
            protocol.Decoder(),
            self._on_end,
            self._on_open,
        )
        self._clients.add(client)
        run_contained(functools.partial(client.start_reading, []), client.end_by)

    def _on_open(self, client: Client, request: TenantSpec) -> None:
        count = descriptors.MOST_PER_REQUEST + len(request.mounts)
        if not descriptors.are_free(count):
            client.fail(DESCRIPTOR_LIMIT, full=True)
            return
        client.paths_to_delete += request.delete
        paths = [*self._spec.writable, *mounted_folders(request.mounts).paths]
        self._folders[client] = WritableFolders(paths)
        on_fetched = functools.partial(self._on_fetched, client, request.mounts)
        self._mount_client.fetch(request.mounts, on_fetched)

    def _on_fetched(
        self, client: Client, mounts: Sequence[MountSpec], descriptors: list[int], error: str
    ) -> None:
        if error:
            client.fail(error)
        elif self._is_active(client):
            self._request_zygote(client, mounts, descriptors)

    def _request_zygote(
        self, client: Client, mounts: Sequence[MountSpec], descriptors: list[int]
    ) -> None:
        ours, theirs = socket.socketpair()
        on_fault = functools.partial(self._on_zygote_fault, client, ours)
        try:
            enable_credentials(ours)
            handler = functools.partial(self._on_zygote, client, ours)
            client.register(ours.fileno(), handler, on_fault=on_fault)
            text = encode_packet(MountFolders(tuple(mount.target for mount in mounts)))
            socket.send_fds(ours, [len(text).to_bytes(4, "big") + text], descriptors)
            socket.send_fds(self._zygote_socket, [handshake.ZYGOTE], [theirs.fileno()])
        except Exception as error:
            on_fault(error)
        finally:
            theirs.close()

    def _on_zygote(self, client: Client, zygote: socket.socket) -> None:
        """Handle a message of the tenant's zygote: it is ready, has failed, or has ended."""
        if client.pool is not None:
            client.fail("the process that cells are forked from ended")
            return
        received = receive(zygote, handshake.MAX_PACKET, CREDENTIALS_SPACE)
        if received is None:
            return
        data, ancillary = received
        if not self._is_active(client):  # its descriptors can have new owners already
            client.unregister(zygote.fileno())
            zygote.close()
            return
        if data == handshake.HELLO:
            self._count += 1
            name, pid = f"tenant-{self._count}-", sender_pid(ancillary)
            client.pool = Pool(
                client,
                zygote,
                pid,
                self._spec,
                self._cgroups,
                name,
                self._scheduler,
                self._folders.pop(client),
            )
            client.send(Ready().encode(0))
            client.flush()
            return
        client.unregister(zygote.fileno())
        zygote.close()
        client.fail(
            data[1:].decode(errors="replace")
            or "the process that cells are forked from did not start"
        )

    def _on_zygote_fault(self, client: Client, zygote: socket.socket, error: Exception) -> None:
        if client.pool is None:
            client.unregister(zygote.fileno(), closing=True)
            zygote.close()
        client.end_by(error)

    def _is_active(self, client: Client) -> bool:
        return client in self._clients and client not in self._leaving

    # the end

    def _on_end(self, client: Client) -> None:
        self._leaving.add(client)
        self._loop.update_deadline(self)
        if client.pool is not None:
            client.pool.start_shutdown()

    def next_deadline(self) -> float:
        """See `TimerHandler`."""
        return time.monotonic() + _REAP_INTERVAL if self._leaving else FOREVER

    def on_fault(self, error: Exception) -> None:
        """See `TimerHandler`. The next timer tries again."""

    def on_timer(self) -> None:
        """Close the streams of tenants whose cells are gone. This is how the tenants learn it."""
        for client in [
            client for client in self._leaving if client.pool is None or client.pool.is_shut_down()
        ]:
            self._leaving.remove(client)
            self._clients.remove(client)
            self._folders.pop(client, None)
            self._loop.remove_timer(client)
            self._take_over_deletions(client)
            client.close()

    def _take_over_deletions(self, client: Client) -> None:
        """Let the server delete what `client` has left. Most clients delete their own folders."""
        paths = (*self._control_client.paths_to_delete, *client.paths_to_delete)
        self._control_client.paths_to_delete = [path for path in paths if os.path.lexists(path)]

    def close(self) -> None:
        """End all tenants, and kill the first zygote."""
        for client in self._clients - self._leaving:
            self._on_end(client)
        # It is the first process of its process namespace: all zygotes and cells end with it.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._zygote_pid, signal.SIGKILL)
        deadline = time.monotonic() + _CLOSE_TIMEOUT
        while self._leaving and time.monotonic() < deadline:
            self.on_timer()
            time.sleep(0.001)
        self._mount_client.close()
        for client in self._clients:
            self._take_over_deletions(client)
