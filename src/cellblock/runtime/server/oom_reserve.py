"""A memory reserve where all cells and the server share one limit, as in a container.

The kernel may not get back the memory of a killed process immediately: not while another process,
such as the server, reads its files in /proc. A process of Cellblock that needs a page then would
make the OOM killer choose another victim, perhaps also Cellblock's. The processes of the
reserve hold memory, and the OOM killer picks them first. There are several, since even without such
readers the kernel may kill the next process before it has the memory of the last one.
"""

from __future__ import annotations

import functools
import os
import signal
import time
from typing import NoReturn

from ..linux import syscalls
from .interfaces import FrameSender

# Seconds until a process takes its memory: the server starts first, or the memory recovers.
_FIRST_DELAY, _RESTART_DELAY = 0.1, 0.5
_PROCESSES = 4
_MAX_DESCRIPTORS = 1024  # more than a server has open


class OomReserve:
    """Hold `size` bytes in total. A process that was killed is replaced."""

    def __init__(self, client: FrameSender, size: int) -> None:
        self._client, self._size = client, size // _PROCESSES
        for _ in range(_PROCESSES):
            self._start_process(_FIRST_DELAY)

    def _start_process(self, delay: float) -> None:
        try:
            reader, writer = os.pipe2(os.O_CLOEXEC)
        except OSError:  # too many open files
            return
        try:
            pid = os.fork()
        except OSError:  # the process limit is reached
            os.close(reader)
        else:
            if pid == 0:
                _hold_memory(writer, self._size, delay)
            self._client.register(reader, functools.partial(self._on_exit, reader, pid))
        os.close(writer)

    def _on_exit(self, reader: int, pid: int) -> None:
        self._client.unregister(reader)
        os.close(reader)
        os.waitpid(pid, 0)
        self._start_process(_RESTART_DELAY)


def _hold_memory(writer: int, size: int, delay: float) -> NoReturn:
    """Run a process of the reserve: hold `size` bytes after `delay` seconds, until it is killed."""
    try:
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.closerange(0, writer)
        os.closerange(writer + 1, _MAX_DESCRIPTORS)
        syscalls.set_oom_score(1000)
        time.sleep(delay)
        # A file that is open but not mapped is freed with the process, even if another process is
        # reading its memory maps.
        os.posix_fallocate(os.memfd_create("reserve"), 0, size)
        while True:
            signal.pause()
    finally:
        time.sleep(_RESTART_DELAY)  # so that a failing process is not restarted in a tight loop
        os._exit(1)  # never return into the server's code
