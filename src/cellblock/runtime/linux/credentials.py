"""Which process has sent a message, as the kernel tells it: ``SCM_CREDENTIALS`` in unix(7)."""

from __future__ import annotations

import socket
import struct

_CREDENTIALS = struct.Struct("3i")
ROOM = socket.CMSG_SPACE(_CREDENTIALS.size)


def ask_for_sender(link: socket.socket) -> None:
    """From now on have each message that comes over `link` say who has sent it."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)


def sender(ancillary: list[tuple[int, int, bytes]]) -> int:
    """Give the process that the message with `ancillary` came from; 0: that was not said."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            return int(_CREDENTIALS.unpack(data[: _CREDENTIALS.size])[0])
    return 0
