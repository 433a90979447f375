"""The runtime server: one loop that starts cells, runs blocks in them, and forwards their output.

It knows nothing of executors. It receives frames over one pair of descriptors, see `protocol`. It
asks a zygote to fork the cells, and keeps some of them ready, so that a block does not wait for one
to start. When its control stream ends, for whatever reason, it kills every cell, deletes the
folders that it was told to delete, and exits.

In a sandbox it can have tenants, each with its own stream, folders and network: see `tenants`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import socket
import time
from typing import TYPE_CHECKING

from .. import protocol
from ..linux import process_tree
from ..linux.credentials import CREDENTIALS_SPACE, sender_pid
from ..linux.retry import receive
from ..linux.safe_folder import remove_tree
from ..messages import Failure, Importing, Ready
from ..packets import decode_packet, encode_packet
from ..spec import ServerSpec
from .cgroups import CellCgroups
from .client import Client
from .event_loop import EventLoop
from .pool import Pool

if TYPE_CHECKING:
    from .tenants import Tenants

_ZYGOTE_SECONDS = 50.0  # for the zygote to start, with the modules of `preload`
_GRACE = 2.0  # seconds until the server stops waiting for its children to end
_MAX_DESCRIPTORS = 1024  # more than a server has open
_OWNER_ENDED = "the owner of the server has ended"


class Server:
    """A server between its owner, who sends the control stream, and the zygote."""

    def __init__(
        self,
        control_in: int,
        control_out: int,
        zygote_socket: socket.socket,
        mount_socket: socket.socket | None,
        listener: socket.socket | None,
        spec: ServerSpec,
        decoder: protocol.Decoder,
    ) -> None:
        self._zygote_socket, self._mount_socket = zygote_socket, mount_socket
        self._listener, self._spec = listener, spec
        self._control_in = control_in
        self._loop = EventLoop()
        self._cgroups = CellCgroups([], [])
        self._control_client = Client(self._loop, control_in, control_out, decoder, self._on_end)
        self._control_client.paths_to_delete = [*spec.delete]
        self._tenants: Tenants | None = None
        self._is_ended = False

    def run(self, launcher: int, frames: list[protocol.Frame]) -> None:
        """Serve until the control stream ends.

        `launcher` is the process that starts the sandbox, or 0. `frames` were read already.
        """
        try:
            if self._start(launcher):
                self._control_client.start_reading(frames)
                while not self._is_ended:
                    self._loop.run_once()
        finally:
            self._close()

    def _close(self) -> None:
        if (sessions := self._control_client.sessions) is not None:
            sessions.close()
        if self._tenants is not None:
            self._tenants.close()
        if self._control_client.pool is not None:
            self._control_client.pool.close()
        _kill_children()
        self._cgroups.remove()
        folders = sessions.folders_to_delete.values() if sessions is not None else ()
        for path in (*self._control_client.paths_to_delete, *itertools.chain(*folders)):
            remove_tree(path)
        if pid := self._spec.stop_pid:
            _terminate_later(pid)

    def _start(self, launcher: int) -> bool:
        """Set up what cells need, and report the result. Return False if that failed."""
        zygote_pid, news = self._await_zygote(launcher)
        if isinstance(news, Ready):
            try:
                self._cgroups = CellCgroups.create(self._spec.cgroups)
            except OSError as error:
                news = Failure(f"control groups cannot be created: {error}")
            else:
                self._set_up_client(zygote_pid)
        self._control_client.send(news.encode(0))
        self._control_client.flush()
        return isinstance(news, Ready)

    def _await_zygote(self, launcher: int) -> tuple[int, Ready | Failure]:
        """Return the zygote's process ID, and whether it is ready."""
        if launcher:
            self._wait_for_end_of(launcher)
            ended, status = os.waitpid(launcher, os.WNOHANG)
            if not ended:
                return 0, Failure(_OWNER_ENDED)
            if status == 0:  # the zygote is our child now, and waits for its specification
                packet = encode_packet(self._spec.zygote)
                self._zygote_socket.sendall(len(packet).to_bytes(4, "big") + packet)
        return self._receive_news()

    def _wait_for_end_of(self, launcher: int) -> None:
        """Wait until the launcher or the owner ends. The kernel can block a launcher for long."""
        try:
            pidfd = os.pidfd_open(launcher)
        except OSError:  # a kernel that is too old for the sandbox, as the launcher reports
            os.waitid(os.P_PID, launcher, os.WEXITED | os.WNOWAIT)
            return
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.register(self._control_in, 0)  # only its end is reported
        poll.poll()
        os.close(pidfd)

    def _receive_news(self) -> tuple[int, Ready | Failure]:
        """Return the zygote's process ID and message. Before, it names each module it imports."""
        poll, events = select.poll(), dict[int, int]()
        poll.register(self._zygote_socket, select.POLLIN)
        poll.register(self._control_in, 0)  # only its end is reported
        module, deadline = "", time.monotonic() + _ZYGOTE_SECONDS
        while events := dict(poll.poll(max(0.0, deadline - time.monotonic()) * 1000)):
            if self._control_in in events:
                return 0, Failure(_OWNER_ENDED)
            if (received := receive(self._zygote_socket, 1 << 16, CREDENTIALS_SPACE)) is None:
                continue
            data, ancillary = received
            if not data:
                break
            for line in data.splitlines():
                news = decode_packet(line, Importing, Ready, Failure)
                if not isinstance(news, Importing):
                    return sender_pid(ancillary), news
                module = news.module
        if not module:
            return 0, Failure("the process that cells are forked from did not start")
        what = "ended the process" if events else f"did not end within {_ZYGOTE_SECONDS:.0f} s"
        return 0, Failure(f"The import {what}.", module=module)

    def _set_up_client(self, zygote_pid: int) -> None:
        """Set up what `spec` asks for. Modules that few servers need are imported here."""
        client = self._control_client
        client.register(self._zygote_socket.fileno(), self._on_zygote_end)
        if self._listener is not None:
            from .tenants import Tenants

            assert self._mount_socket is not None
            self._tenants = Tenants(
                self._loop,
                client,
                self._listener,
                self._zygote_socket,
                zygote_pid,
                self._mount_socket,
                self._spec,
                self._cgroups,
            )
            return
        zygote = self._zygote_socket
        if self._spec.sessions:
            from .sessions.manager import SessionManager

            client.sessions = SessionManager(
                client, zygote, zygote_pid, self._mount_socket, self._spec, self._cgroups
            )
            client.pool = client.sessions.pool
        else:
            client.pool = Pool(client, zygote, zygote_pid, self._spec, self._cgroups)
        if size := self._spec.reserve_bytes:
            from .oom_reserve import OomReserve

            OomReserve(client, size)

    def _on_zygote_end(self) -> None:
        self._control_client.fail("the process that cells are forked from ended")

    def _on_end(self, _client: Client) -> None:
        self._is_ended = True


def _kill_children() -> None:
    """Kill the processes below the server: orphans of cells, the launcher, the mount broker."""
    deadline = time.monotonic() + _GRACE
    while process_tree.reap_all() and time.monotonic() < deadline:
        process_tree.kill_descendants(os.getpid())
        time.sleep(0.001)


def _terminate_later(pid: int) -> None:
    """Send SIGTERM to `pid` after `STOP_DELAY`, from a forked process, without waiting for it.

    If the container is restarted in that time, the forked process ends with it.
    """
    if os.fork() == 0:
        os.closerange(0, _MAX_DESCRIPTORS)
        time.sleep(protocol.STOP_DELAY)
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGTERM)
        os._exit(0)
