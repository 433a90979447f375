"""A successful block reports its own end, just before its memory is freed.

The kernel reports the end of a process only after freeing its memory, which takes a fifth of a
short block's time. The first process accepts the notification only if no other process or thread
was started in the block. It then has the effect of `_exit(0)`: the process that sent it is killed
before the server is told.
"""

from __future__ import annotations

import importlib
import os
import struct
import time
from collections.abc import Callable
from typing import Any

from ..linux import syscalls

# Without the enums of `signal`, whose pages each block's process would have to copy.
_set_signal: Callable[[int, Any], Any] = importlib.import_module("_signal").signal
_SIG_DFL = 0
_SIGNAL = 62  # a real-time signal without a predefined meaning, see signal(7)
_INIT_PID = 1  # a cell's first process, in its own process namespace
# `os.closerange` loops over all possible numbers if Python was built for older systems.
_close_descriptors = syscalls.PreparedCall(
    "syscall", "close_range", syscalls.CLOSE_RANGE, 3, 0xFFFFFFFF, 0
)
_CPUCLOCK_SCHED = (
    2  # the lowest bits of the ID of a process's CPU clock, see clock_getcpuclockid(3)
)


def notify() -> None:
    """Notify the first process that the block has nothing left to do but `_exit(0)`."""
    try:
        os.close(0)  # the block may hold a lock on it, as on the others below
    except OSError:
        pass  # the block has closed it
    try:  # not `contextlib`: using it here would copy its pages
        # Other blocks may wait for locks and ports. If they cannot be released, nothing is sent.
        _close_descriptors()
        os.kill(_INIT_PID, _SIGNAL)
        os.sched_yield()  # the first process may need this CPU before our memory is freed
    except OSError:
        pass


class EarlyExit:
    """The handler in the first process: on a valid notification, kill the block and report success.

    `kill` ends the block. `send_report` receives the packed `report`.
    """

    def __init__(
        self, kill: Callable[[], None], send_report: Callable[[bytes], None], report: struct.Struct
    ) -> None:
        self._kill, self._send_report, self._report = kill, send_report, report
        self._loadavg = -1  # /proc/loadavg, which also has the ID of the last started process
        self._main = 0  # the process that may notify
        self._is_enabled = self._is_notified = False
        self.is_confirmed = False  # the notification was accepted, and the report sent

    def enable(self) -> None:
        """Install the signal handler."""
        self._is_enabled = True
        self._loadavg = os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
        _set_signal(_SIGNAL, self._on_signal)

    def disable_in_child(self) -> None:
        """In a main process, remove the handler, and close its file before user code runs."""
        if self._is_enabled:
            os.close(self._loadavg)
            _set_signal(_SIGNAL, _SIG_DFL)

    def reset(self) -> None:
        """Prepare for the next main process, before it is forked."""
        self._main, self._is_notified, self.is_confirmed = 0, False, False

    def watch(self, main: int) -> None:
        """Accept a notification of process `main` only. It may have arrived before this call."""
        self._main = main
        if self._is_notified:
            self._check()
        elif self._is_enabled:
            self._cpu_seconds()  # copies the pages that it writes to now instead of at the end

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._is_notified = True
        if self._main and not self.is_confirmed:
            self._check()

    def _check(self) -> None:
        cpu = self._cpu_seconds()
        if cpu is None:
            return
        self.is_confirmed = True
        self._kill()
        self._send_report(self._report.pack(0, cpu, 0))
        os.waitpid(self._main, 0)  # its status and usage are not needed any more

    def _cpu_seconds(self) -> float | None:
        """Return the CPU time of the main process.

        Return None if another process or thread was started in the block, or it has ended.
        """
        if self._last_started() != self._main:
            return None
        try:
            return time.clock_gettime(~self._main << 3 | _CPUCLOCK_SCHED)
        except OSError:
            return None

    def _last_started(self) -> int:
        """Return the ID of the last started process or thread of this process namespace."""
        return int(os.pread(self._loadavg, 100, 0).rpartition(b" ")[2])
