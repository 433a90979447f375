"""A hold on one process: signals reach it and no later one of its number, and its end is seen."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal

from . import process_tree


class Hold:
    """See above. The kernel of gVisor has no such thing: there it is the number, which comes again only after all others."""

    def __init__(self, pid: int) -> None:
        """Take hold of process `pid`. Raises `OSError`."""
        self._pid, self._descriptor = pid, -1
        try:
            self._descriptor = os.pidfd_open(pid)
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise

    def send(self, number: int) -> None:
        """Send it signal `number`, if it has not ended."""
        with contextlib.suppress(ProcessLookupError):
            if self._descriptor >= 0:
                signal.pidfd_send_signal(self._descriptor, number)
            else:
                os.kill(self._pid, number)

    def has_ended(self) -> bool:
        """Tell whether it has ended."""
        if self._descriptor < 0:
            return process_tree.is_zombie(self._pid)
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN)
        return bool(poller.poll(0))

    def close(self) -> None:
        """Let go of it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
