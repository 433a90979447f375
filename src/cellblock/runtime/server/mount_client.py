"""The server's end of the link to a sandbox's porter: ask for mounts, get descriptors, in order and without waiting."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable
from typing import Any

from ..cell.init import MOST_MOUNTS, PACKET
from .interfaces import Watcher

Then = Callable[[list[int], str], None]


class Porter:
    """Hands in folders of the machine. `then` gets the descriptors, to be closed by it, and what went wrong, if anything."""

    def __init__(self, loop: Watcher, link: socket.socket) -> None:
        self._link = link
        self._waiting: list[Then] = []
        self._loop = loop
        loop.watch(link.fileno(), self._on_answer)

    def fetch(self, mounts: list[dict[str, Any]], then: Then) -> None:
        """Ask for `mounts`, as `sandbox.mounts` takes them."""
        if not self._waiting and self._link.fileno() < 0:
            then([], "the porter of the sandbox ended")
            return
        self._waiting.append(then)
        self._link.send(json.dumps(mounts).encode())

    def _on_answer(self) -> None:
        try:
            data, ancillary, _, _ = self._link.recvmsg(
                PACKET, socket.CMSG_SPACE(MOST_MOUNTS * 4), socket.MSG_CMSG_CLOEXEC
            )
        except OSError:
            data, ancillary = b"", []
        if not data:
            self.close()
            return
        descriptors = [
            item for _, _, part in ancillary for item in struct.unpack(f"{len(part) // 4}i", part)
        ]
        self._waiting.pop(0)(descriptors, json.loads(data).get("error", ""))

    def close(self) -> None:
        """Let go of it, which ends it."""
        self._loop.forget(self._link.fileno())
        self._link.close()
        for then in self._waiting:
            then([], "the porter of the sandbox ended")
        self._waiting.clear()


class NoPorter:
    """Where there are no walls: what is asked for is there already."""

    def fetch(self, mounts: list[dict[str, Any]], then: Then) -> None:
        """Have nothing to hand in."""
        then([], "these sessions cannot be given folders" if mounts else "")

    def close(self) -> None:
        """Nothing is open."""
