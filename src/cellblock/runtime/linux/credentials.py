"""The process that sent a message, as reported by the kernel: ``SCM_CREDENTIALS`` in unix(7)."""

from __future__ import annotations

import socket
import struct

_CREDENTIALS = struct.Struct("3i")
CREDENTIALS_SPACE = socket.CMSG_SPACE(_CREDENTIALS.size)


def enable_credentials(receiver: socket.socket) -> None:
    """Let the kernel add the sender's credentials to each message that `receiver` receives."""
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)


def sender_pid(ancillary: list[tuple[int, int, bytes]]) -> int:
    """Return the process ID in the ancillary data of a message, 0 if there is none."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            return int(_CREDENTIALS.unpack(data[: _CREDENTIALS.size])[0])
    return 0
