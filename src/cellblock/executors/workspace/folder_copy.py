"""Copy a folder, or one file, while code may be writing to it.

A file is a reflink to the original, if the filesystem supports that, or a copy. What its owner may
not read is made readable meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Generator
from dataclasses import dataclass
from typing import NamedTuple, Self

from ...errors import CheckpointError
from ...runtime.linux.safe_folder import READ_RIGHTS, SafeFolder, write_all

if sys.platform != "win32":
    import fcntl

MAX_DEPTH = 64
_SMALL_BYTES = 1 << 16  # a file up to this size is read in one call
_FICLONE = 0x40049409  # ioctl_ficlone(2)
_CHUNK_BYTES = 1 << 24


@dataclass
class CopyStats:
    """What copying a folder took: bytes that were copied and bytes that are shared.

    `max_copied_bytes` limits `copied_bytes`. `None` means no limit.
    """

    copied_bytes: int = 0
    shared_bytes: int = 0
    max_copied_bytes: int | None = None

    def count_copied(self, size: int) -> None:
        """Count bytes that are about to be copied. Raise `CheckpointError` above the limit."""
        self.copied_bytes += size
        if self.max_copied_bytes is not None and self.copied_bytes > self.max_copied_bytes:
            raise CheckpointError(
                f"The checkpoint would copy more than {self.max_copied_bytes} bytes of the work "
                "folder. Remove files, or raise Limits.written_bytes."
            )


class Metadata(NamedTuple):
    """Owner, permissions and times of a file or folder. The times are in nanoseconds."""

    user: int
    group: int
    mode: int
    accessed: int
    modified: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        """Return the metadata in `status`."""
        return cls(
            status.st_uid,
            status.st_gid,
            stat.S_IMODE(status.st_mode) & 0o777,
            status.st_atime_ns,
            status.st_mtime_ns,
        )

    def set_on(self, descriptor: int) -> None:
        """Give an open file or folder this metadata."""
        with contextlib.suppress(PermissionError):  # without root, all files have the same owner
            os.chown(descriptor, self.user, self.group)
        os.chmod(descriptor, self.mode)
        os.utime(descriptor, ns=(self.accessed, self.modified))

    def set_on_folder(self, folder: SafeFolder) -> None:
        """Give `folder` this metadata, which it keeps when it is closed."""
        self.set_on(folder.descriptor)
        folder.mode = None


def copy_entries(
    source: SafeFolder, target: SafeFolder, stats: CopyStats, depth: int = MAX_DEPTH
) -> None:
    """Copy everything in `source` to `target`, an empty folder that no code can see."""
    for name, status in source.statuses():
        if stat.S_ISLNK(status.st_mode):
            target.create_link(name, source.read_link(name))
        elif stat.S_ISDIR(status.st_mode):
            with open_inner(name, source, depth) as inner, target.new_folder(name) as copy:
                copy_entries(inner, copy, stats, depth - 1)
                Metadata.of(status).set_on_folder(copy)
        elif stat.S_ISREG(status.st_mode):
            with open_file(name, source) as (opened, status), new_file(name, target) as created:
                copy_contents(opened, created, status, stats)
                Metadata.of(status).set_on(created)


@contextlib.contextmanager
def open_folder(
    name: str, above: SafeFolder | None = None, rights: int = READ_RIGHTS
) -> Generator[SafeFolder]:
    """Open a folder, and give its owner `rights` to it meanwhile. Raise `CheckpointError`."""
    if sys.platform != "linux":
        raise CheckpointError("Checkpoints of a session need Linux on this machine.")
    with name_denied(name, above):
        opened = above.folder(name, rights=rights) if above else SafeFolder.at(name, rights=rights)
        with opened:
            yield opened


def open_inner(
    name: str, above: SafeFolder, depth: int
) -> contextlib.AbstractContextManager[SafeFolder]:
    """Open a folder in another one. Raise `CheckpointError` at `depth` 0."""
    if not depth:
        raise CheckpointError(
            f"The work folder is nested more than {MAX_DEPTH} folders deep and cannot be copied. "
            "Flatten it."
        )
    return open_folder(name, above)


@contextlib.contextmanager
def name_denied(name: str, above: SafeFolder | None) -> Generator[None]:
    """Raise `CheckpointError` if rights to `name` are missing and another user owns it."""
    try:
        yield
    except PermissionError as error:
        path = os.path.join(above.path, name) if above else name
        raise CheckpointError(
            f"{path!r} belongs to another user, and cannot be copied or replaced: "
            f"{error.strerror}. Change its permissions, or move it out of the work folder."
        ) from error


@contextlib.contextmanager
def open_file(name: str, folder: SafeFolder) -> Generator[tuple[int, os.stat_result]]:
    """Open a regular file for reading, and yield it and its status. Raise `CheckpointError`."""
    with name_denied(name, folder):
        descriptor = folder.open_file(name, rights=stat.S_IRUSR)
    try:
        yield descriptor, os.fstat(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def new_file(name: str, folder: SafeFolder) -> Generator[int]:
    """Create a file that only its owner may use, and yield it open for writing."""
    descriptor = folder.create_file(name, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def copy_contents(source: int, target: int, status: os.stat_result, stats: CopyStats) -> None:
    """Copy the data of the open file `source`, of this `status`, to the empty file `target`."""
    if (data := read_small(source, status)) is not None:
        stats.count_copied(len(data))
        write_all(target, data)
    elif _reflink(source, target):
        stats.shared_bytes += status.st_size
    else:
        stats.count_copied(min(status.st_size, status.st_blocks * 512))
        _copy_bytes(source, target)


def read_small(source: int, status: os.stat_result) -> bytes | None:
    """Return all data of the open file `source` if it is small, else None."""
    if status.st_size > _SMALL_BYTES:
        return None
    data = os.read(source, status.st_size + 1)
    return data if len(data) == status.st_size else None


def _reflink(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True


def _copy_bytes(source: int, target: int) -> None:
    """Copy the data of a file but not its holes, so that a sparse file stays sparse."""
    size, end = os.fstat(source).st_size, 0
    while end < size:
        try:
            start = os.lseek(source, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break  # the rest is a hole
            raise
        end = os.lseek(source, start, os.SEEK_HOLE)
        _copy_range(source, target, start, end)
    os.ftruncate(target, size)


def _copy_range(source: int, target: int, start: int, end: int) -> None:
    for descriptor in (source, target):
        os.lseek(descriptor, start, os.SEEK_SET)
    left = end - start
    while left > 0:
        try:
            count = os.copy_file_range(source, target, min(left, _CHUNK_BYTES))
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            data = os.read(source, min(left, _CHUNK_BYTES))
            count = len(data)
            write_all(target, data)
        if count == 0:
            return  # the file was truncated during the copy
        left -= count
