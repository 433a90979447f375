"""The server's side of the mount broker: request mounts and receive descriptors, in order."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Callable, Sequence

from ..handshake import MAX_MOUNTS, MAX_PACKET
from ..linux.retry import receive
from ..messages import FetchedMounts, FetchMounts, MountSpec, TakeBackFiles
from ..packets import decode_packet, encode_packet
from .faults import DESCRIPTOR_LIMIT, describe
from .interfaces import EventSource

OnFetched = Callable[[list[int], str], None]
_TAKE_BACK_SECONDS = 60.0  # at the end of the server
_BROKER_ENDED = "the mount broker of the sandbox ended"


class MountClient:
    """Request folders of the machine from the mount broker, without waiting for its replies."""

    def __init__(self, events: EventSource, broker: socket.socket) -> None:
        self._broker = broker
        self._waiting: list[OnFetched] = []
        self._events = events
        events.register(broker.fileno(), self._on_reply)

    def fetch(self, mounts: Sequence[MountSpec], on_fetched: OnFetched) -> None:
        """Request `mounts`.

        `on_fetched` receives the descriptors, which are closed when it returns, and the error, ""
        if none. If it raises, it is called once more with that as the error.
        """
        self._request(FetchMounts(tuple(mounts)), on_fetched)

    def take_back(self, folders: Sequence[str], on_done: Callable[[str], None]) -> None:
        """Let `folders` belong to their owners again. `on_done` receives the error, "" if none."""
        self._request(TakeBackFiles(tuple(folders)), lambda _, error: on_done(error))

    def _request(self, request: FetchMounts | TakeBackFiles, on_fetched: OnFetched) -> None:
        if not self._waiting and self._broker.fileno() < 0:
            on_fetched([], _BROKER_ENDED)
            return
        self._broker.send(encode_packet(request))
        self._waiting.append(on_fetched)

    def _on_reply(self) -> None:
        room = socket.CMSG_SPACE(MAX_MOUNTS * 4)
        received = receive(self._broker, MAX_PACKET, room, socket.MSG_CMSG_CLOEXEC)
        if received is None:
            return
        data, ancillary = received
        if not data:
            self.close()
            return
        descriptors = [
            item for _, _, part in ancillary for item in struct.unpack(f"{len(part) // 4}i", part)
        ]
        reply, on_fetched = decode_packet(data, FetchedMounts), self._waiting.pop(0)
        try:
            if len(descriptors) < reply.descriptors:  # the kernel has dropped the others
                on_fetched([], DESCRIPTOR_LIMIT)
            else:
                on_fetched(descriptors, reply.error)
        except Exception as error:
            on_fetched([], describe(error))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def close(self) -> None:
        """Close the socket, which ends the broker. Pending requests fail."""
        self._events.unregister(self._broker.fileno())
        self._broker.close()
        for on_fetched in self._waiting:
            on_fetched([], _BROKER_ENDED)
        self._waiting.clear()

    def take_back_all(self) -> None:
        """End the broker, and wait until all folders belong to their owners again."""
        if self._broker.fileno() < 0:
            return
        with contextlib.suppress(OSError):  # it has ended, or takes too long
            self._broker.settimeout(_TAKE_BACK_SECONDS)
            self._broker.shutdown(socket.SHUT_WR)
            while self._broker.recv(MAX_PACKET):
                pass
        self.close()


class NoMounts:
    """The mount client without a sandbox, where folders cannot be mounted."""

    def fetch(self, mounts: Sequence[MountSpec], on_fetched: OnFetched) -> None:
        """Fail if `mounts` is not empty."""
        on_fetched([], "these sessions cannot mount folders" if mounts else "")

    def take_back(self, folders: Sequence[str], on_done: Callable[[str], None]) -> None:
        """Do nothing: there are no other users."""
        on_done("")

    def take_back_all(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
