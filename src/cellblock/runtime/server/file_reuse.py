"""The files of blocks, used again: what a short block waits for most, on some disks, is that a file is made for it.

(ext4 without a journal looks at every inode that was freed in the last minutes: thousands, after many short blocks.) So
such a file is a slate: it stays in a folder that no code sees, and is linked into the work folder under the name of the next
block. Once that name was removed it may be written again, if it still is as it was made.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
from collections import deque
from typing import NamedTuple

from ..linux import files

_MOST = 64  # slates; where many callers wait for their answers together, so many are in use
_LOOKS = 2  # slates looked at for each block, before a new one is made
_LARGE = 1 << 20  # bytes; to make a file that size short takes time
# A lease that code has taken on a file must not hold us up, nor may anything else.
_OPEN = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_GET_FLAGS = 0x80086601  # see ioctl_iflags(2)
_NEVER = (
    errno.EXDEV,
    errno.EPERM,
    errno.EOPNOTSUPP,
)  # the folders lie on two disks, or on one without links


class _Marks(NamedTuple):
    """What code could change of its own file that the next block would find, or could be hindered by."""

    links: int
    mode: int
    uid: int
    gid: int
    attributes: tuple[str, ...]
    flags: int  # FS_IOC_GETFLAGS: to be written at once, say


class Slates:
    """Those of one executor, in the folder `path`, which is made when there is need."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._marks: dict[str, _Marks] = {}
        self._used: deque[str] = deque()  # the one that was written longest ago comes first
        self._count = 0
        self._is_of_use = True

    def write(self, path: str, data: bytes) -> int:
        """Do as `files.write_at`, with a slate where that is possible."""
        if self._is_of_use and data:  # to make a file empty has the disk write at once
            try:
                return files.in_its_folder(
                    path, lambda name, folder: self._write(name, data, folder)
                )
            except OSError as error:
                self._is_of_use = error.errno not in _NEVER
        return files.write_at(path, data)  # which says what is wrong, if it still is

    def _write(self, name: str, data: bytes, folder: int) -> int:
        slate, descriptor = self._take(folder)
        try:
            files.write_all(descriptor, data)
            status = os.fstat(descriptor)
            if status.st_size > len(data):
                os.ftruncate(descriptor, len(data))
            os.link(self._whole(slate), name, dst_dir_fd=folder, follow_symlinks=False)
        except BaseException:
            self._drop(slate)
            raise
        finally:
            os.close(descriptor)
        self._used.append(slate)
        return status.st_ctime_ns

    def _take(self, folder: int) -> tuple[str, int]:
        """Give a slate that nobody uses, opened for writing."""
        for _ in range(min(_LOOKS, len(self._used))):
            slate = self._used.popleft()
            descriptor = self._open(slate)
            if descriptor >= 0:
                return slate, descriptor
        while len(self._used) >= _MOST:
            self._drop(self._used.popleft())
        return self._make(folder)

    def _open(self, slate: str) -> int:
        """Open `slate`, and give -1 while its block's name is there; one that is not as it was made is dropped."""
        try:
            descriptor = os.open(self._whole(slate), _OPEN)
        except OSError:  # code of another block runs it as a program, say
            self._drop(slate)
            return -1
        status, made = os.fstat(descriptor), self._marks[slate]
        if _marks(descriptor, status) == made and status.st_size <= _LARGE:
            return descriptor
        os.close(descriptor)
        if status.st_nlink > made.links:
            self._used.append(slate)
        else:
            self._drop(slate)
        return -1

    def _make(self, folder: int) -> tuple[str, int]:
        if not self._count:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._path, 0o700)
        self._count += 1
        slate = str(self._count)
        descriptor = files.open_new(self._whole(slate))
        files.give(descriptor, folder)
        self._marks[slate] = _marks(descriptor, os.fstat(descriptor))
        return slate, descriptor

    def _drop(self, slate: str) -> None:
        del self._marks[slate]
        files.remove(self._whole(slate))

    def _whole(self, slate: str) -> str:
        return f"{self._path}/{slate}"


def _marks(descriptor: int, status: os.stat_result) -> _Marks:
    attributes = list[str]()
    with contextlib.suppress(OSError):  # a disk without them
        attributes = os.listxattr(descriptor)
    flags = bytearray(8)
    with contextlib.suppress(OSError):
        fcntl.ioctl(descriptor, _GET_FLAGS, flags)
    return _Marks(
        status.st_nlink,
        status.st_mode,
        status.st_uid,
        status.st_gid,
        tuple(attributes),
        int.from_bytes(flags, sys.byteorder),
    )
