"""Snapshots of a folder, taken while code may be writing to it.

A snapshot is a folder that is never modified. A file that has not changed since the previous
snapshot becomes a hard link to the file there. Otherwise it is a reflink to the original, if the
filesystem supports that, or a copy. What its owner may not read is made readable meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import tempfile
from collections.abc import Collection, Generator
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import CheckpointError
from ...runtime.linux.safe_folder import (
    ALL_RIGHTS,
    READ_RIGHTS,
    SafeFolder,
    remove_tree,
    write_all,
)
from .fingerprint import FileFingerprint, fingerprint

if sys.platform != "win32":
    import fcntl

_FICLONE = 0x40049409  # ioctl_ficlone(2)
_CHUNK_BYTES = 1 << 24
_MAX_DEPTH = 64


@dataclass
class CopyStats:
    """What copying a folder took: bytes that were copied and bytes that are shared.

    `max_copied_bytes` limits `copied_bytes`. `None` means no limit.
    """

    copied_bytes: int = 0
    shared_bytes: int = 0
    files: int = 0
    max_copied_bytes: int | None = None

    def count_copied(self, size: int) -> None:
        """Count bytes that are about to be copied. Raise `CheckpointError` above the limit."""
        self.copied_bytes += size
        if self.max_copied_bytes is not None and self.copied_bytes > self.max_copied_bytes:
            raise CheckpointError(
                f"The checkpoint would copy more than {self.max_copied_bytes} bytes of the work "
                "folder. Remove files, or raise Limits.written_bytes."
            )


@dataclass
class Snapshot:
    """A frozen copy of a folder. `originals` has the fingerprints of the files in the original."""

    path: Path
    stats: CopyStats = field(default_factory=CopyStats)
    originals: dict[str, FileFingerprint] = field(default_factory=dict[str, FileFingerprint])

    def remove(self) -> None:
        """Delete the snapshot's folder."""
        remove_tree(str(self.path))


def take_snapshot(
    folder: Path, previous: Snapshot | None, parent: Path, max_copied_bytes: int | None = None
) -> Snapshot:
    """Take a snapshot of `folder` in a new subfolder of `parent`.

    Files that have not changed since the snapshot `previous` are shared with it. Raise
    `CheckpointError` if more than `max_copied_bytes` would be copied, or another user's file cannot
    be read.
    """
    snapshot = Snapshot(
        Path(tempfile.mkdtemp(prefix="snapshot-", dir=parent)),
        CopyStats(max_copied_bytes=max_copied_bytes),
    )
    try:
        with (
            _open(str(folder)) as source,
            SafeFolder.at(snapshot.path) as copy,
        ):
            _copy_entries(
                source, copy, "", snapshot.stats, snapshot.originals, previous, _MAX_DEPTH
            )
    except BaseException:
        snapshot.remove()
        raise
    return snapshot


def copy_folder(source: Path, target: Path, max_copied_bytes: int | None = None) -> CopyStats:
    """Copy the folder `source` to `target`. Both can be changed afterwards.

    Raise `CheckpointError` if more than `max_copied_bytes` would be copied, or another user's file
    cannot be read.
    """
    target.mkdir(parents=True, exist_ok=True)
    stats = CopyStats(max_copied_bytes=max_copied_bytes)
    with _open(str(source)) as original, SafeFolder.at(target) as copy:
        _copy_entries(original, copy, "", stats, {}, None, _MAX_DEPTH)
    return stats


def restore_snapshot(
    snapshot: Snapshot, folder: Path, *, read_only: Collection[str] = ()
) -> CopyStats:
    """Restore `folder` to its state in `snapshot`. Files that have not changed since are kept.

    So are the paths `read_only`: code cannot have changed them, and a file that is replaced would
    no longer be protected.
    """
    stats = CopyStats()
    with (
        SafeFolder.at(snapshot.path) as source,
        _open(str(folder), rights=ALL_RIGHTS) as target,
    ):
        _restore_folder(source, target, "", stats, snapshot, read_only)
    return stats


def _copy_entries(
    source: SafeFolder,
    target: SafeFolder,
    prefix: str,
    stats: CopyStats,
    originals: dict[str, FileFingerprint],
    previous: Snapshot | None,
    depth: int,
) -> None:
    for name, status in source.statuses():
        path = f"{prefix}{name}"
        if stat.S_ISLNK(status.st_mode):
            source.copy_link(name, target)
        elif stat.S_ISDIR(status.st_mode):
            if not depth:
                raise CheckpointError(
                    f"The work folder is nested more than {_MAX_DEPTH} folders deep and cannot be "
                    "copied. Flatten it."
                )
            with _open(name, source) as inner, target.new_folder(name) as copy:
                _copy_entries(inner, copy, f"{path}/", stats, originals, previous, depth - 1)
                _copy_folder_metadata(copy, status)
        elif stat.S_ISREG(status.st_mode):
            state = originals[path] = fingerprint(status)
            if (
                previous is not None
                and previous.originals.get(path) == state
                and _hard_link(previous.path / path, target, name)
            ):
                stats.shared_bytes += status.st_size
            else:
                _copy_file(source, target, name, stats)
            stats.files += 1


@contextlib.contextmanager
def _open(
    name: str, above: SafeFolder | None = None, rights: int = READ_RIGHTS
) -> Generator[SafeFolder]:
    """Open a folder, and give its owner `rights` to it meanwhile. Raise `CheckpointError`."""
    if sys.platform != "linux":
        raise CheckpointError("Checkpoints of a session need Linux on this machine.")
    with _name_denied(name, above):
        opened = above.folder(name, rights=rights) if above else SafeFolder.at(name, rights=rights)
        with opened:
            yield opened


@contextlib.contextmanager
def _name_denied(name: str, above: SafeFolder | None) -> Generator[None]:
    """Raise `CheckpointError` if rights to `name` are missing and another user owns it."""
    try:
        yield
    except PermissionError as error:
        path = os.path.join(above.path, name) if above else name
        raise CheckpointError(
            f"{path!r} belongs to another user, and cannot be copied or replaced: "
            f"{error.strerror}. Change its permissions, or move it out of the work folder."
        ) from error


def _copy_metadata(descriptor: int, status: os.stat_result) -> None:
    with contextlib.suppress(PermissionError):  # without root, all files have the same owner anyway
        os.chown(descriptor, status.st_uid, status.st_gid)
    os.chmod(descriptor, stat.S_IMODE(status.st_mode) & 0o777)
    os.utime(descriptor, ns=(status.st_atime_ns, status.st_mtime_ns))


def _copy_folder_metadata(folder: SafeFolder, status: os.stat_result) -> None:
    _copy_metadata(folder.descriptor, status)
    folder.mode = None


def _hard_link(file: Path, target: SafeFolder, name: str) -> bool:
    try:
        target.link(file, name)
    except OSError:
        return False
    return True


def _copy_file(source: SafeFolder, target: SafeFolder, name: str, stats: CopyStats) -> None:
    with _name_denied(name, source), source.read_file(name, rights=stat.S_IRUSR) as file:
        status = os.fstat(opened := file.fileno())
        created = target.create_file(name, 0o600)
        try:
            if _reflink(opened, created):
                stats.shared_bytes += status.st_size
            else:
                stats.count_copied(min(status.st_size, status.st_blocks * 512))
                _copy_bytes(opened, created)
            _copy_metadata(created, status)
        finally:
            os.close(created)


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


def _restore_folder(
    source: SafeFolder,
    target: SafeFolder,
    prefix: str,
    stats: CopyStats,
    snapshot: Snapshot,
    read_only: Collection[str],
) -> None:
    wanted = dict(source.statuses())
    kept = set[str]()
    for name, status in list(target.statuses()):
        path = f"{prefix}{name}"
        if path in read_only:
            wanted.pop(name, None)
            continue
        saved = wanted.get(name)
        if saved is not None and stat.S_ISDIR(saved.st_mode) and stat.S_ISDIR(status.st_mode):
            kept.add(name)
        elif (
            saved is not None
            and stat.S_ISREG(saved.st_mode)
            and snapshot.originals.get(path) == fingerprint(status)
        ):
            kept.add(name)
        else:
            with _name_denied(name, target):
                target.remove(name)
    for name, status in wanted.items():
        is_kept = name in kept
        if not stat.S_ISDIR(status.st_mode):
            _restore_file(source, target, prefix, name, status, is_kept, stats, snapshot)
            continue
        with (
            _open(name, source) as inner,
            _open(name, target, ALL_RIGHTS) if is_kept else target.new_folder(name) as restored,
        ):
            _restore_folder(inner, restored, f"{prefix}{name}/", stats, snapshot, read_only)
            _copy_folder_metadata(restored, status)


def _restore_file(
    source: SafeFolder,
    target: SafeFolder,
    prefix: str,
    name: str,
    status: os.stat_result,
    kept: bool,
    stats: CopyStats,
    snapshot: Snapshot,
) -> None:
    path = f"{prefix}{name}"
    if stat.S_ISLNK(status.st_mode):
        source.copy_link(name, target)
    elif kept:
        stats.shared_bytes += status.st_size
    else:
        _copy_file(source, target, name, stats)
        # The file now equals the one in the snapshot, so the next restore need not copy it again.
        snapshot.originals[path] = fingerprint(target.stat(name))
    stats.files += stat.S_ISREG(status.st_mode)
