"""Repeat a system call that a process which serves many cannot do without.

It decides for both ends of every channel what the end of the other side is, and what passes.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
Ancillary = list[tuple[int, int, bytes]]
# Of a call on a channel: the machine lacks something at present, or there is nothing to do.
PASSING = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.EINTR)
)
_RETRIES, _DELAY = 100, 0.01  # seconds
_PAUSE = 0.001  # seconds for which the caller serves nobody


def retry(call: Callable[[], _T]) -> _T:
    """Return what `call` returns. If the kernel lacks memory, for example, call it again.

    Raise `ConnectionError` immediately, and what `call` raises a second later.
    """
    for _ in range(_RETRIES):
        try:
            return call()
        except ConnectionError:
            raise
        except (OSError, MemoryError):
            time.sleep(_DELAY)
    return call()


def receive(
    channel: socket.socket, size: int, ancillary_size: int = 0, flags: int = 0
) -> tuple[bytes, Ancillary] | None:
    """Return what there is to receive, b"" at the end of the other side.

    Return None if nothing can be received at present: the event loop calls again. Raise `OSError`.
    """
    try:
        data, ancillary, _, _ = channel.recvmsg(size, ancillary_size, flags)
    except ConnectionError:
        return b"", []
    except OSError as error:
        if error.errno not in PASSING:
            raise
        if error.errno != errno.EAGAIN:
            time.sleep(_PAUSE)
        return None
    return data, ancillary
