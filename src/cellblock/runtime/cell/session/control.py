"""The session's end of its control stream: frames in both directions, with descriptors.

An interrupt never cuts a frame in two: both ends would lose their place in the stream.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
from collections import deque
from types import FrameType

from ... import protocol
from ...linux.retry import retry

_HIGH_DESCRIPTOR = 500  # user code that closes all descriptors rarely goes up to here
_READ_SIZE = 1 << 16  # bytes
_ANCILLARY_SIZE = socket.CMSG_SPACE(16 * 4)  # bytes, for 16 descriptors
_CLOSE_ON_EXEC = int(socket.MSG_CMSG_CLOEXEC)


class ControlLost(Exception):
    """The stream has ended, or user code has closed or replaced this end of it."""


class Control:
    """A blocking stream of frames on `descriptor`, which is moved to a high number."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = move_to_high_descriptor(descriptor)
        self._socket = socket.socket(fileno=self.descriptor)
        status = os.fstat(self.descriptor)
        self._identity = status.st_dev, status.st_ino
        self._decoder = protocol.Decoder()
        self._frames: deque[tuple[protocol.Frame, list[int]]] = deque()
        self._descriptors: list[int] = []  # of the frame that is not complete yet
        self._has_interrupt = False  # to raise once the present frame is complete
        self._poll = select.poll()
        self._poll.register(self.descriptor, select.POLLIN)

    def _check_socket(self) -> None:
        try:
            status = os.fstat(self.descriptor)
            if (status.st_dev, status.st_ino) == self._identity:
                if not os.get_blocking(self.descriptor):  # user code may have changed it
                    os.set_blocking(self.descriptor, True)
                return
        except OSError:
            pass
        raise ControlLost

    def defers_interrupt(self, code: FrameType | None) -> bool:
        """Return True if an interrupt of `code` would cut a frame of the stream in two.

        Then `KeyboardInterrupt` is raised here once that frame is complete.
        """
        whole = self._read.__code__, self._write.__code__
        while code is not None and code.f_code not in whole:
            code = code.f_back
        self._has_interrupt = code is not None
        return self._has_interrupt

    def _raise_deferred(self) -> None:
        if self._has_interrupt:
            self._has_interrupt = False
            raise KeyboardInterrupt

    def receive(self) -> tuple[protocol.Frame, list[int]]:
        """Wait for the next frame and return it with its descriptors. Raise `ControlLost`."""
        self._check_socket()
        while not self._frames:
            self._poll.poll()  # an interrupt may end the wait, but not what follows
            self._read()
            self._raise_deferred()
        return self._frames.popleft()

    def _read(self) -> None:
        data, ancillary, _, _ = retry(
            lambda: self._socket.recvmsg(_READ_SIZE, _ANCILLARY_SIZE, _CLOSE_ON_EXEC)
        )
        if not data:
            raise ControlLost
        received: list[int] = []
        for _, _, packed in ancillary:
            received += struct.unpack(f"{len(packed) // 4}i", packed)
        frames = list(self._decoder.feed(data))
        descriptors: list[list[int]] = [[] for _ in range(len(frames) + self._decoder.is_in_frame)]
        descriptors[0] += self._descriptors
        descriptors[-1] += received  # the kernel returns nothing of what was sent after them
        self._descriptors = descriptors[-1] if self._decoder.is_in_frame else []
        self._frames += zip(frames, descriptors, strict=False)

    def is_idle(self) -> bool:
        """Return True if there is nothing to receive."""
        return not self._frames and not self._poll.poll(0)

    def send_frame(self, frame: bytes) -> None:
        """Send one encoded frame. Raise `ControlLost`."""
        self._check_socket()
        self._write(frame)
        self._raise_deferred()

    def _write(self, frame: bytes) -> None:
        try:
            self._socket.sendall(frame)
        except OSError as error:
            raise ControlLost from error

    def close(self) -> None:
        """Close the stream."""
        self._socket.close()


def move_to_high_descriptor(descriptor: int) -> int:
    """Duplicate `descriptor` to a high number and close it. Return the new number.

    Returns `descriptor` itself if the limit of open files is too low.
    """
    try:
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH_DESCRIPTOR)
    except OSError:
        return descriptor
    os.close(descriptor)
    return moved
