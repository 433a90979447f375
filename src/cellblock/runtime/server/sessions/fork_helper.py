"""A helper process that forks a process for each branch of a fork, as the server sees it."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Callable

from ... import handshake
from ...linux.credentials import CREDENTIALS_SPACE, enable_credentials, sender_pid
from ...linux.known_process import KnownProcess
from ...linux.retry import receive
from ...messages import ForkNext, OrderResult
from ...packets import decode_packet, encode_packet
from ..interfaces import EventSource


class ForkHelper:
    """The helper and the socket to it. `on_ready` is called when it is ready for an order.

    `on_end` is called with the reason when it has ended or failed before `close`.
    """

    def __init__(
        self,
        loop: EventSource,
        on_ready: Callable[[ForkHelper], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._loop, self._on_ready, self._on_end = loop, on_ready, on_end
        self.pid, self.is_ready = 0, False
        self._process: KnownProcess | None = None
        self._socket, self._peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        enable_credentials(self._socket)
        loop.register(self._socket.fileno(), self._on_packet)

    @property
    def peer_fd(self) -> int:
        """The helper's end of the socket. Pass it on, then call `close_peer`."""
        return self._peer.fileno()

    def close_peer(self) -> None:
        """Close our copy of the helper's end of the socket."""
        self._peer.close()

    def send(self, order: ForkNext, descriptors: list[int]) -> None:
        """Send an order, if it has not been closed."""
        self.is_ready = False
        if self._socket.fileno() < 0:
            return
        with contextlib.suppress(ConnectionError):  # `_on_packet` handles the end of the process
            socket.send_fds(self._socket, [encode_packet(order)], descriptors)

    def _on_packet(self) -> None:
        received = receive(self._socket, handshake.MAX_PACKET, CREDENTIALS_SPACE)
        if received is None:
            return
        data, ancillary = received
        error = decode_packet(data, OrderResult).error if data else "the forking process ended"
        if error:
            self.close()
            self._on_end(error)
            return
        if not self.pid:
            self.pid = sender_pid(ancillary)
            self._process = KnownProcess(self.pid)
        self.is_ready = True
        self._on_ready(self)

    def kill(self) -> None:
        """Kill the helper. Close its socket, which ends it, if its process is not known.

        The process is not known before it has reported its ID, or if no descriptor is free.
        """
        try:
            if self._process is not None:
                self._process.send_signal(signal.SIGKILL)
                return
        except OSError:
            pass
        self.close()

    def close(self) -> None:
        """Close the socket, which ends the helper."""
        if self._socket.fileno() >= 0:
            self._loop.unregister(self._socket.fileno())
            self._socket.close()
            self._peer.close()
