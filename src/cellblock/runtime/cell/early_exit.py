"""A block that ends well says so itself, since the kernel tells of its end only when it has given all of its memory back.

That takes a fifth of a short block's time. It is believed only where no other process or thread was ever begun in the block;
then it comes to the same as a call of `_exit(0)`: whoever says it is killed before anybody is told.
"""

from __future__ import annotations

import importlib
import os
import struct
import time
from collections.abc import Callable
from typing import Any

from ..linux import syscalls

# Without the enums of `signal`, which every block's process would have to copy.
_set_signal: Callable[[int, Any], Any] = importlib.import_module("_signal").signal
_SIG_DFL = 0
_SIGNAL = 62  # a real-time one, which means nothing to anybody; see signal(7)
_FIRST = 1  # the number of a cell's first process in its own process namespace
# Python's own is a loop over all numbers there could be, where it was built for older systems.
_close_descriptors = syscalls.Call("syscall", "close_range", syscalls.CLOSE_RANGE, 3, 0xFFFFFFFF, 0)
_OF_PROCESS = 2  # the last three bits of such a clock's number; see clock_getcpuclockid(3)


def say() -> None:
    """Tell the first process that nothing comes any more but `_exit(0)`."""
    try:
        os.close(0)  # which the block may have locked, as all that goes next
    except OSError:
        pass  # the block has closed it
    try:  # not by `contextlib`, of which nothing was touched yet, and so copied
        _close_descriptors()  # what others may wait for, locks and ports, goes first, or it is not said at all
        os.kill(_FIRST, _SIGNAL)
        os.sched_yield()  # who is told may wait for this processor, until all of our memory is given back
    except OSError:
        pass


class Farewell:
    """What the first process makes of it: `kill` ends the block, and `tell` is given its packed `report`: it ended well."""

    def __init__(
        self, kill: Callable[[], None], tell: Callable[[bytes], None], report: struct.Struct
    ) -> None:
        self._kill, self._tell, self._report = kill, tell, report
        self._load = -1  # /proc/loadavg, which also tells what was begun last
        self._main = 0  # the process that may say it
        self._listens = self._said = False
        self.is_over = False  # it was said, and believed

    def listen(self) -> None:
        """Hear of it from now on."""
        self._listens = True
        self._load = os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
        _set_signal(_SIGNAL, self._hear)

    def leave(self) -> None:
        """In a main process: it hears nothing itself, and where user code runs, nothing of ours is open."""
        if self._listens:
            os.close(self._load)
            _set_signal(_SIGNAL, _SIG_DFL)

    def begin(self) -> None:
        """A main process is about to be forked."""
        self._main, self._said, self.is_over = 0, False, False

    def expect(self, main: int) -> None:
        """Believe process `main` alone, which may have said it while we were still on our way here."""
        self._main = main
        if self._said:
            self._look()
        elif self._listens:
            self._cpu_seconds()  # what that writes to is shared with the main process: better copied now than then

    def _hear(self, _number: int, _frame: object) -> None:
        self._said = True
        if self._main and not self.is_over:
            self._look()

    def _look(self) -> None:
        cpu = self._cpu_seconds()
        if cpu is None:
            return
        self.is_over = True
        self._kill()
        self._tell(self._report.pack(0, cpu, 0))
        os.waitpid(
            self._main, 0
        )  # here: how it ended, and after how long, is not asked for any more

    def _cpu_seconds(self) -> float | None:
        """Give what the main process has used, if nothing else was begun, and the kernel has not told of its end already."""
        if self._last_begun() != self._main:
            return None
        try:
            return time.clock_gettime(~self._main << 3 | _OF_PROCESS)
        except OSError:
            return None

    def _last_begun(self) -> int:
        """Give the number of the process or thread that was begun last in this process namespace."""
        return int(os.pread(self._load, 100, 0).rpartition(b" ")[2])
