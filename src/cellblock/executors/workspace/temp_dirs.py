"""SharedTempDir: a temporary folder outside a container, shared by the sessions in it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ...backends.scratch import create_scratch
from .cleanup_watchdog import CleanupWatchdog


class SharedTempDir:
    """A temporary folder with several users.

    It is removed when its last user releases it, or soon after this process was killed. A watchdog
    is needed because code in the container cannot remove a folder of a process that has died.
    """

    def __init__(self, work_dir: Path) -> None:
        """Create the folder outside of `work_dir`."""
        self.path = create_scratch("cellblock-shared-", work_dir)
        # Container users may pass through to their own subdirectory, but not list the folder.
        self.path.chmod(0o711)
        self._users = 0
        self._watchdog = CleanupWatchdog(self.path)

    def acquire(self) -> None:
        """Add a user of the folder."""
        self._users += 1

    async def release(self) -> None:
        """Remove a user. The last one removes the folder."""
        self._users -= 1
        if self._users == 0:
            await asyncio.to_thread(self._watchdog.remove)

    def subdir(self, name: str) -> Path:
        """Return the subdirectory `name`. Creates it if it is missing, for its owner only."""
        path = self.path / name
        path.mkdir(mode=0o700, exist_ok=True)
        return path
