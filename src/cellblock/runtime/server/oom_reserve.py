"""Memory in reserve, where all cells and the server share one limit: processes that hold some, and are ended first.

What the kernel ends for want of memory may keep its memory for a while: as long as somebody looks at it, as the server does.
Whoever of ours needs a page in that while would have the kernel end another process, which may be one of ours. They are
several, since even without a look the kernel may end the next one before it has what the last one held.
"""

from __future__ import annotations

import functools
import os
import signal
import time
from typing import NoReturn

from ..linux import syscalls
from .interfaces import Owner

_AT_FIRST, _AFTERWARDS = (
    0.1,
    0.5,
)  # seconds until it takes its memory: let a server start, or what has run out come back
_PROCESSES = 4
_DESCRIPTORS = 1024  # more than a server has open


class Reserve:
    """`size` bytes in all, and again as many as were taken."""

    def __init__(self, loop: Owner, size: int) -> None:
        self._loop, self._size = loop, size // _PROCESSES
        for _ in range(_PROCESSES):
            self._make(_AT_FIRST)

    def _make(self, delay: float) -> None:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        try:
            pid = os.fork()
        except OSError:  # no process to spare
            os.close(reader)
        else:
            if pid == 0:
                _hold(writer, self._size, delay)
            self._loop.watch(reader, functools.partial(self._on_end, reader, pid))
        os.close(writer)

    def _on_end(self, reader: int, pid: int) -> None:
        self._loop.forget(reader)
        os.close(reader)
        os.waitpid(pid, 0)
        self._make(_AFTERWARDS)


def _hold(writer: int, size: int, delay: float) -> NoReturn:
    """Be the process that holds `size` bytes, after `delay` seconds; its end closes `writer`."""
    try:
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.closerange(0, writer)
        os.closerange(writer + 1, _DESCRIPTORS)
        syscalls.adjust_memory_score(1000)
        time.sleep(delay)
        # A file that is open only, and not mapped, is gone with the process, whoever looks at what that had mapped.
        os.posix_fallocate(os.memfd_create("reserve"), 0, size)
        while True:
            signal.pause()
    finally:
        time.sleep(_AFTERWARDS)  # lest one that cannot be is made again without a pause
        os._exit(1)  # whatever it was: what is below us on the stack is the server's
