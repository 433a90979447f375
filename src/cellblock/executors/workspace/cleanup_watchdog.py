"""CleanupWatchdog: remove a folder even if this process is killed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ...runtime.linux.safe_folder import remove_tree

# The shell's standard input reaches its end when this process exits, for whatever reason.
_WATCHDOG_SCRIPT = 'trap "" HUP INT TERM; read -r _; rm -rf -- "$0"'


class CleanupWatchdog:
    """Remove the folder `path` on `remove`, or soon after this process was killed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHDOG_SCRIPT, path],
            stdin=subprocess.PIPE,
            stdout=null,
            stderr=null,
            start_new_session=True,
            cwd="/",
        )

    def remove(self) -> None:
        """Remove the folder and wait until the watchdog process has ended."""
        remove_tree(str(self._path))
        self._end()

    def cancel(self) -> None:
        """Keep the folder, and end the watchdog process."""
        self._process.kill()
        self._end()

    def _end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
