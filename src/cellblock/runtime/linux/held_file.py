"""A file of the kernel, for example in /proc, that is read often and need not stay open.

To open such a file takes longer than to read it.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import ClassVar

if sys.platform != "win32":
    import resource

_SHARE, _MOST = 16, 128  # at most this part of the descriptors, or this number, are such files


class HeldFile:
    """The file at `path`. It is opened when it is used, and stays open until `release`.

    When many are open in this process, the one that was opened first is released.
    """

    _open_files: ClassVar[dict[HeldFile, None]] = {}  # in the order in which they were opened

    def __init__(self, path: str, flags: int = os.O_RDONLY) -> None:
        self._path, self._flags = path, flags
        self._descriptor = -1

    def read(self, size: int = 1024) -> bytes:
        """Return its first `size` bytes. Raise `OSError`."""
        return os.pread(self._open(), size, 0)

    def write(self, data: bytes) -> None:
        """Write `data` to it. Raise `OSError`."""
        os.pwrite(self._open(), data, 0)

    def link_count(self) -> int:
        """Return its number of links. Raise `OSError`."""
        return os.fstat(self._open()).st_nlink

    def _open(self) -> int:
        if self._descriptor < 0:
            if len(self._open_files) >= most_open():
                next(iter(self._open_files)).release()
            self._descriptor = os.open(self._path, self._flags | os.O_CLOEXEC)
            self._open_files[self] = None
        return self._descriptor

    def release(self) -> None:
        """Close it until it is used again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            del self._open_files[self]

    @classmethod
    def release_all(cls) -> bool:
        """Close all such files of this process until they are used again. Return True if any."""
        files = list(cls._open_files)
        for file in files:
            file.release()
        return bool(files)


@functools.cache
def most_open() -> int:
    """Return how many such files can be open in this process."""
    return min(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _SHARE, _MOST)
