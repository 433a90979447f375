"""A handle of one process: signals never reach a later process with the same process ID."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal

from . import process_tree


class PidFd:
    """A pidfd, see pidfd_open(2). gVisor has none: there the process ID, reused late, must do."""

    def __init__(self, pid: int) -> None:
        """Open a pidfd of process `pid`. Raise `OSError` if there is no such process."""
        self._pid, self._descriptor = pid, -1
        try:
            self._descriptor = os.pidfd_open(pid)
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise

    def send_signal(self, number: int) -> None:
        """Send signal `number` to the process, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            if self._descriptor >= 0:
                signal.pidfd_send_signal(self._descriptor, number)
            else:
                os.kill(self._pid, number)

    def has_ended(self) -> bool:
        """Return True if the process has ended."""
        if self._descriptor < 0:
            return process_tree.has_ended(self._pid)
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN)
        return bool(poller.poll(0))

    def close(self) -> None:
        """Close the pidfd."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
