"""The inner end of a live session's control stream: frames that come and go, and descriptors that come with them."""

from __future__ import annotations

import fcntl
import json
import os
import select
import socket
import struct
from collections import deque
from typing import Any

from ... import protocol

_HIGH = 500  # code that closes all descriptors it can think of seldom thinks of these
_READ = 1 << 16
_ROOM = socket.CMSG_SPACE(16 * 4)  # for descriptors that come at once
_CLOSE_ON_EXEC = int(socket.MSG_CMSG_CLOEXEC)


class ControlLost(Exception):
    """The stream has ended, or code has closed our end of it, or put another in its place."""


class Control:
    """A blocking stream of frames on descriptor `descriptor`, which is moved out of the way of user code."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = out_of_the_way(descriptor)
        self._socket = socket.socket(fileno=self.descriptor)
        status = os.fstat(self.descriptor)
        self._identity = status.st_dev, status.st_ino
        self._decoder = protocol.Decoder()
        self._frames: deque[protocol.Frame] = deque()
        self._poll = select.poll()
        self._poll.register(self.descriptor, select.POLLIN)

    def _check(self) -> None:
        try:
            status = os.fstat(self.descriptor)
            if (status.st_dev, status.st_ino) == self._identity:
                if not os.get_blocking(self.descriptor):  # as code may have made all that it found
                    os.set_blocking(self.descriptor, True)
                return
        except OSError:
            pass
        raise ControlLost

    def receive(self) -> tuple[protocol.Frame, list[int]]:
        """Wait for the next frame; give it with the descriptors that came along. Raises `ControlLost`."""
        self._check()
        descriptors: list[int] = []
        while not self._frames:
            data, ancillary, _, _ = self._socket.recvmsg(_READ, _ROOM, _CLOSE_ON_EXEC)
            if not data:
                raise ControlLost
            for _, _, received in ancillary:
                descriptors += struct.unpack(f"{len(received) // 4}i", received)
            self._frames += self._decoder.feed(data)
        return self._frames.popleft(), descriptors

    def is_quiet(self) -> bool:
        """Tell whether nothing has come that would have to be received."""
        return not self._frames and not self._poll.poll(0)

    def send(self, kind: int, run: int, value: dict[str, Any] | bytes) -> None:
        """Send one frame. Raises `ControlLost`."""
        self.send_frame(
            protocol.encode(
                kind, run, value if isinstance(value, bytes) else json.dumps(value).encode()
            )
        )

    def send_frame(self, frame: bytes) -> None:
        """Send one frame that is made. Raises `ControlLost`."""
        self._check()
        try:
            self._socket.sendall(frame)
        except OSError as error:
            raise ControlLost from error

    def close(self) -> None:
        """Let go of it."""
        self._socket.close()


def out_of_the_way(descriptor: int) -> int:
    """Move `descriptor` to a high number, where few programs look."""
    try:
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    except OSError:  # the limit of open files is lower than that
        return descriptor
    os.close(descriptor)
    return moved
