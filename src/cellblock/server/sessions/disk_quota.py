"""DiskQuota: bound the bytes on disk of all sessions of one key."""

from __future__ import annotations

import asyncio
import contextlib
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from ...runtime.linux.safe_folder import SafeFolder
from ..refusals import DiskQuotaExceeded

_BLOCK_BYTES = 512  # the unit of st_blocks
_MAX_DEPTH = 100
_ADVICE = "Delete files, or end sessions of this key."


class DiskQuota:
    """What the sessions of one key may have on disk. With `quota` None, nothing is measured.

    `folders` returns the folders of these sessions. It must be safe to call in any thread. Files
    that have no name any more are not counted, nor those outside of these folders.
    """

    def __init__(self, quota: int | None, folders: Callable[[], Iterable[Path]]) -> None:
        self._quota, self._folders = quota, folders

    async def remaining(self) -> int | None:
        """Return how many bytes the sessions may still write; None means any number.

        Raise `DiskQuotaExceeded` if the quota is used up.
        """
        return None if self._quota is None else await asyncio.to_thread(self._remaining)

    def check(self) -> None:
        """Raise `DiskQuotaExceeded` if the sessions have more than the quota. This blocks."""
        if self._quota is not None:
            self._remaining()

    def _remaining(self) -> int:
        assert self._quota is not None
        remaining = self._quota - disk_bytes(self._folders())
        if remaining <= 0:
            raise DiskQuotaExceeded(
                f"The sessions of this key may have {self._quota} bytes on disk. {_ADVICE}"
            )
        return remaining


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
