"""Snapshots of a folder, taken while code may be writing to it.

Links are never followed out of the folder. A snapshot is a folder that is never modified. A file
that has not changed since the previous snapshot becomes a hard link to the file there. Otherwise it
is a reflink to the original, if the filesystem supports that, or a copy. What its owner may not
read is made readable while it is copied.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import tempfile
from collections.abc import Collection, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import CheckpointError
from ...runtime.linux import open_flags
from ...runtime.linux.rmtree import remove_tree
from .fingerprint import FileFingerprint, fingerprint

if sys.platform != "win32":
    import fcntl

_FICLONE = 0x40049409  # ioctl_ficlone(2)
_READ_RIGHTS, _ALL_RIGHTS = stat.S_IRUSR | stat.S_IXUSR, stat.S_IRWXU  # to a folder
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
            _open_folder(None, str(folder)) as source,
            _open_folder(None, str(snapshot.path)) as copy,
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
    with _open_folder(None, str(source)) as original, _open_folder(None, str(target)) as copy:
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
        _open_folder(None, str(snapshot.path)) as source,
        _open_folder(None, str(folder), _ALL_RIGHTS) as target,
    ):
        _restore_folder(source, target, "", stats, snapshot, read_only)
    return stats


def _entries(folder: int) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries]
    for name in names:
        with contextlib.suppress(FileNotFoundError):  # code can remove files at any time
            yield name, os.stat(name, dir_fd=folder, follow_symlinks=False)


def _copy_entries(
    source: int,
    target: int,
    prefix: str,
    stats: CopyStats,
    originals: dict[str, FileFingerprint],
    previous: Snapshot | None,
    depth: int,
) -> None:
    for name, status in _entries(source):
        path = f"{prefix}{name}"
        if stat.S_ISLNK(status.st_mode):
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
        elif stat.S_ISDIR(status.st_mode):
            if not depth:
                raise CheckpointError(
                    f"The work folder is nested more than {_MAX_DEPTH} folders deep and cannot be "
                    "copied. Flatten it."
                )
            with _open_folder(source, name) as inner, _new_folder(target, name) as copy:
                _copy_entries(inner, copy, f"{path}/", stats, originals, previous, depth - 1)
                _copy_metadata(copy, status)
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
def _open_folder(folder: int | None, name: str, rights: int = _READ_RIGHTS) -> Generator[int]:
    with _open_with_rights(folder, name, open_flags.FOLDER, rights) as (inner, _):
        yield inner


@contextlib.contextmanager
def _open_with_rights(
    folder: int | None, name: str, flags: int, rights: int
) -> Generator[tuple[int, os.stat_result]]:
    """Open `name` in `folder`, and give its owner `rights` to it until the context ends.

    Yield the descriptor, and the status before. Raise `CheckpointError` if the rights are missing
    and another user owns it.
    """
    if sys.platform != "linux":
        raise CheckpointError("Checkpoints of a session need Linux on this machine.")
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    path, opened, is_changed = f"/proc/self/fd/{handle}", -1, False
    status = os.fstat(handle)
    try:
        if status.st_mode & rights != rights:
            # Of another user's file, the rights of its group or of others may be enough.
            with contextlib.suppress(PermissionError):
                os.chmod(path, stat.S_IMODE(status.st_mode) | rights)
                is_changed = True
        opened = os.open(path, flags & ~os.O_NOFOLLOW)
        yield opened, status
    except PermissionError as error:
        raise CheckpointError(
            f"{os.readlink(path)!r} belongs to another user, and cannot be copied or replaced: "
            f"{error.strerror}. Change its permissions, or move it out of the work folder."
        ) from error
    finally:
        if is_changed:
            os.chmod(path, stat.S_IMODE(status.st_mode))
        if opened >= 0:
            os.close(opened)
        os.close(handle)


@contextlib.contextmanager
def _new_folder(folder: int, name: str) -> Generator[int]:
    os.mkdir(name, 0o700, dir_fd=folder)
    with _open_folder(folder, name) as inner:
        yield inner


def _copy_metadata(descriptor: int, status: os.stat_result) -> None:
    with contextlib.suppress(PermissionError):  # without root, all files have the same owner anyway
        os.chown(descriptor, status.st_uid, status.st_gid)
    os.chmod(descriptor, stat.S_IMODE(status.st_mode) & 0o777)
    os.utime(descriptor, ns=(status.st_atime_ns, status.st_mtime_ns))


def _hard_link(file: Path, target: int, name: str) -> bool:
    try:
        os.link(file, name, dst_dir_fd=target, follow_symlinks=False)
    except OSError:
        return False
    return True


def _copy_file(source: int, target: int, name: str, stats: CopyStats) -> None:
    with _open_with_rights(source, name, open_flags.READ_FILE, stat.S_IRUSR) as (opened, status):
        if not stat.S_ISREG(status.st_mode):
            return
        created = os.open(name, open_flags.NEW_FILE, 0o600, dir_fd=target)
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
            while data:
                data = data[os.write(target, data) :]
        if count == 0:
            return  # the file was truncated during the copy
        left -= count


def _restore_folder(
    source: int,
    target: int,
    prefix: str,
    stats: CopyStats,
    snapshot: Snapshot,
    read_only: Collection[str],
) -> None:
    wanted = dict(_entries(source))
    kept = set[str]()
    for name, status in list(_entries(target)):
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
            _remove(target, name, status)
    for name, status in wanted.items():
        is_kept = name in kept
        if not stat.S_ISDIR(status.st_mode):
            _restore_file(source, target, prefix, name, status, is_kept, stats, snapshot)
            continue
        if not is_kept:
            os.mkdir(name, 0o700, dir_fd=target)
        with (
            _open_folder(source, name) as inner,
            _open_folder(target, name, _ALL_RIGHTS) as restored,
        ):
            _restore_folder(inner, restored, f"{prefix}{name}/", stats, snapshot, read_only)
            _copy_metadata(restored, status)


def _restore_file(
    source: int,
    target: int,
    prefix: str,
    name: str,
    status: os.stat_result,
    kept: bool,
    stats: CopyStats,
    snapshot: Snapshot,
) -> None:
    path = f"{prefix}{name}"
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
    elif kept:
        stats.shared_bytes += status.st_size
    else:
        _copy_file(source, target, name, stats)
        # The file now equals the one in the snapshot, so the next restore need not copy it again.
        snapshot.originals[path] = fingerprint(os.stat(name, dir_fd=target, follow_symlinks=False))
    stats.files += stat.S_ISREG(status.st_mode)


def _remove(folder: int, name: str, status: os.stat_result) -> None:
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=folder)
        return
    with _open_folder(folder, name, _ALL_RIGHTS) as inner:
        for inner_name, inner_status in list(_entries(inner)):
            _remove(inner, inner_name, inner_status)
    os.rmdir(name, dir_fd=folder)
