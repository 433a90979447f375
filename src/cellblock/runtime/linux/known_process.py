"""A process that is known by its ID and start time. Unlike a pidfd, that costs no descriptor."""

from __future__ import annotations

import contextlib

from . import process_tree
from .pidfd import PidFd


class KnownProcess:
    """Process `pid`. Raise `ProcessLookupError` if it has ended."""

    def __init__(self, pid: int) -> None:
        self.pid, self._started = pid, process_tree.start_time(pid)
        if not self._started:
            raise ProcessLookupError(pid)

    def has_ended(self) -> bool:
        """Return True if the process has ended, whether or not it has been reaped."""
        return process_tree.start_time(self.pid) != self._started

    def send_signal(self, number: int) -> None:
        """Send signal `number` to the process, unless it has ended."""
        try:
            pidfd = PidFd(self.pid)
        except ProcessLookupError:
            return
        with contextlib.closing(pidfd):
            if not self.has_ended():  # otherwise the kernel may use the process ID again
                pidfd.send_signal(number)
