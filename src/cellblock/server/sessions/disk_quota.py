"""DiskQuota: bound the bytes on disk of all sessions of one key."""

from __future__ import annotations

import asyncio
import contextlib
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from pathlib import Path

from ...runtime.linux.safe_folder import SafeFolder
from ..refusals import DiskQuotaExceeded

_BLOCK_BYTES = 512  # the unit of st_blocks
_MAX_DEPTH = 100
_ADVICE = "Delete files, those of the home (~/) too, or end sessions of this key."


class DiskQuota:
    """What the sessions of one key may have on disk. With `quota` None, nothing is measured.

    `measure` returns what they have. `lock` is that of the key: one upload at a time is checked.
    Files that have no name any more are not counted, nor those outside of the sessions' folders.
    """

    def __init__(
        self, quota: int | None, measure: Callable[[], Awaitable[int]], lock: asyncio.Lock
    ) -> None:
        self._quota, self._measure, self._lock = quota, measure, lock

    async def remaining(self) -> int | None:
        """Return how many bytes the sessions may still write; None means any number.

        Raise `DiskQuotaExceeded` if the quota is used up.
        """
        if self._quota is None:
            return None
        remaining = self._quota - await self._measure()
        if remaining <= 0:
            raise self._exceeded()
        return remaining

    @contextlib.asynccontextmanager
    async def room_for(self, size: int) -> AsyncGenerator[None]:
        """Let so many bytes be written during the context. Raise `DiskQuotaExceeded`."""
        if self._quota is None:
            yield
            return
        async with self._lock:
            if size > (await self.remaining() or 0):
                raise self._exceeded()
            yield

    def _exceeded(self) -> DiskQuotaExceeded:
        return DiskQuotaExceeded(
            f"The sessions of this key may have {self._quota} bytes on disk. {_ADVICE}"
        )


def disk_bytes(folders: Iterable[Path]) -> int:
    """Return the size on disk of everything in `folders`. Links are not followed.

    Raise `DiskQuotaExceeded` if code has made it impossible to look at all of it.
    """
    usage = _Usage()
    for path in dict.fromkeys(folders):
        try:
            with SafeFolder.at(path) as folder:
                usage.add_folder(folder, _MAX_DEPTH)
        except FileNotFoundError:  # its session has ended
            pass
        except OSError as error:
            raise _uncountable(error.strerror) from error
    return usage.bytes


class _Usage:
    """The sum of the sizes of files and folders. A file with several names counts once."""

    def __init__(self) -> None:
        self.bytes = 0
        self._seen = set[tuple[int, int]]()

    def add_folder(self, folder: SafeFolder, depth: int) -> None:
        """Add the contents of `folder`."""
        for name, status in folder.statuses():
            identity = status.st_dev, status.st_ino
            if identity in self._seen:
                continue
            self._seen.add(identity)
            self.bytes += status.st_blocks * _BLOCK_BYTES
            if not stat.S_ISDIR(status.st_mode):
                continue
            if not depth:
                raise _uncountable(f"more than {_MAX_DEPTH} folders are in each other")
            replaced = FileNotFoundError, NotADirectoryError
            with contextlib.suppress(*replaced), folder.folder(name) as inner:
                self.add_folder(inner, depth - 1)


def _uncountable(reason: str | None) -> DiskQuotaExceeded:
    return DiskQuotaExceeded(
        f"The files of this key's sessions cannot be counted for its quota: {reason}. {_ADVICE}"
    )
