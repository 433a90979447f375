"""Reuse the code files of blocks: on some disks, creating a file is most of a short block's time.

(ext4 without a journal looks at every inode that was freed in the last minutes, thousands after
many short blocks.) A reusable file stays in a folder that no code sees, and is hard-linked into the
work folder under the name of the next block. When that name has been removed, the file is written
again, unless code has changed more of it than its content.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
from collections import deque
from typing import NamedTuple

from ..linux.safe_folder import SafeFolder, open_parent, write_all, write_new_file_at

_MAX_FILES = 64  # as many are in use if many callers wait for their replies together
_MAX_TRIES = 2  # files checked for each block before a new one is created
_MAX_REUSED_BYTES = 1 << 20  # truncating a larger file takes time
# Neither a lease that code holds on a file nor anything else may block the server.
_OPEN_FLAGS = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FS_IOC_GETFLAGS = 0x80086601  # see ioctl_iflags(2)
# The folders are on two filesystems, or on one without hard links.
_UNSUPPORTED = (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP)


class _FileState(NamedTuple):
    """What code could change of its file that would affect the next block."""

    links: int
    mode: int
    uid: int
    gid: int
    attributes: tuple[str, ...]
    flags: int  # FS_IOC_GETFLAGS, such as synchronous writes


class ReusableFiles:
    """The reusable files of one client, in the folder `path`, which is created on first use."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._states: dict[str, _FileState] = {}
        self._used: deque[str] = deque()  # least recently written first
        self._count = 0
        self._is_supported = True

    def write(self, path: str, data: bytes) -> int:
        """Write a new file like `write_new_file_at`, with a reused file where possible."""
        # Truncating a file to nothing makes some disks write immediately.
        if self._is_supported and data:
            try:
                with open_parent(path) as (folder, name):
                    return self._write(name, data, folder)
            except OSError as error:
                self._is_supported = error.errno not in _UNSUPPORTED
        return write_new_file_at(path, data)  # raises the error again if it persists

    def _write(self, name: str, data: bytes, folder: SafeFolder) -> int:
        file, descriptor = self._open_unused(folder)
        try:
            write_all(descriptor, data)
            status = os.fstat(descriptor)
            if status.st_size > len(data):
                os.ftruncate(descriptor, len(data))
            folder.link(self._path_of(file), name)
        except BaseException:
            self._delete(file)
            raise
        finally:
            os.close(descriptor)
        self._used.append(file)
        return status.st_ctime_ns

    def _open_unused(self, folder: SafeFolder) -> tuple[str, int]:
        """Return the name and a writable descriptor of a file that no block uses."""
        for _ in range(min(_MAX_TRIES, len(self._used))):
            file = self._used.popleft()
            descriptor = self._try_open(file)
            if descriptor >= 0:
                return file, descriptor
        while len(self._used) >= _MAX_FILES:
            self._delete(self._used.popleft())
        return self._create(folder)

    def _try_open(self, file: str) -> int:
        """Open `file`, or return -1 if a block still uses it or code has changed it.

        A changed file is deleted.
        """
        try:
            descriptor = os.open(self._path_of(file), _OPEN_FLAGS)
        except OSError:  # for example, code of another block executes it
            self._delete(file)
            return -1
        status, state = os.fstat(descriptor), self._states[file]
        if _file_state(descriptor, status) == state and status.st_size <= _MAX_REUSED_BYTES:
            return descriptor
        os.close(descriptor)
        if status.st_nlink > state.links:
            self._used.append(file)
        else:
            self._delete(file)
        return -1

    def _create(self, folder: SafeFolder) -> tuple[str, int]:
        if not self._count:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._path, 0o700)
        self._count += 1
        file = str(self._count)
        with SafeFolder.at(self._path) as own:
            descriptor = own.create_file(file)
        folder.give_to_owner(descriptor)
        self._states[file] = _file_state(descriptor, os.fstat(descriptor))
        return file, descriptor

    def _delete(self, file: str) -> None:
        del self._states[file]
        with contextlib.suppress(OSError):
            os.unlink(self._path_of(file))

    def _path_of(self, file: str) -> str:
        return f"{self._path}/{file}"


def _file_state(descriptor: int, status: os.stat_result) -> _FileState:
    attributes = list[str]()
    with contextlib.suppress(OSError):  # the filesystem may not support them
        attributes = os.listxattr(descriptor)
    flags = bytearray(8)
    with contextlib.suppress(OSError):
        fcntl.ioctl(descriptor, _FS_IOC_GETFLAGS, flags)
    return _FileState(
        status.st_nlink,
        status.st_mode,
        status.st_uid,
        status.st_gid,
        tuple(attributes),
        int.from_bytes(flags, sys.byteorder),
    )
