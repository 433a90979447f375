"""Copies of a folder that code may be writing into: nothing is followed out of it, nothing unchanged is copied twice.

A snapshot is a folder of ours that nobody changes. A file of it that has not changed since the snapshot before is a hard
link to the one there; else it shares its bytes with the original where the filesystem can do that (a "reflink"); else it
is copied.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ...errors import CheckpointError
from ...runtime.linux.rmtree import remove_tree

_FICLONE = 0x40049409  # ioctl_ficlone(2)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 24
_DEEPEST = 64


class Mark(NamedTuple):
    """What tells one state of a file from the next; its time of change cannot be set by who owns it."""

    inode: int
    changed: int
    size: int


@dataclass
class Cost:
    """What a copy of a folder has cost: bytes that were copied, and bytes that did not have to be."""

    copied_bytes: int = 0
    shared_bytes: int = 0
    files: int = 0
    most: int | None = None

    def copy(self, size: int) -> None:
        """Count bytes that are about to be copied."""
        self.copied_bytes += size
        if self.most is not None and self.copied_bytes > self.most:
            raise CheckpointError(
                f"The work folder holds more than {self.most} bytes (written_bytes) that have to be copied."
            )


@dataclass
class Snapshot:
    """A frozen copy of a folder. `seen` tells the state in which each file of the original was."""

    path: Path
    cost: Cost = field(default_factory=Cost)
    seen: dict[str, Mark] = field(default_factory=dict[str, Mark])

    def remove(self) -> None:
        """Remove it."""
        remove_tree(str(self.path))


def take(folder: Path, before: Snapshot | None, parent: Path, most: int | None = None) -> Snapshot:
    """Make a snapshot of `folder` below `parent`; what is as it was in `before` is shared with that.

    Raises `CheckpointError` when more than `most` bytes would have to be copied.
    """
    snapshot = Snapshot(Path(tempfile.mkdtemp(prefix="snapshot-", dir=parent)), Cost(most=most))
    source, target = os.open(folder, _FOLDER), os.open(snapshot.path, _FOLDER)
    try:
        _copy_folder(source, target, "", snapshot.cost, snapshot.seen, before, _DEEPEST)
    except BaseException:
        snapshot.remove()
        raise
    finally:
        os.close(source)
        os.close(target)
    return snapshot


def copy(source: Path, target: Path, most: int | None = None) -> Cost:
    """Make the folder `target` a copy of `source`; both sides can be changed afterwards. Raises as `take` does."""
    target.mkdir(parents=True, exist_ok=True)
    cost = Cost(most=most)
    one, other = os.open(source, _FOLDER), os.open(target, _FOLDER)
    try:
        _copy_folder(one, other, "", cost, {}, None, _DEEPEST)
    finally:
        os.close(one)
        os.close(other)
    return cost


def restore(snapshot: Snapshot, folder: Path) -> Cost:
    """Make what is in `folder` be as it was when `snapshot` was made of it; what has not changed since is left alone."""
    cost = Cost()
    source, target = os.open(snapshot.path, _FOLDER), os.open(folder, _FOLDER)
    try:
        _restore_folder(source, target, "", cost, snapshot)
    finally:
        os.close(source)
        os.close(target)
    return cost


def _entries(folder: int) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries]
    for name in names:
        with contextlib.suppress(
            FileNotFoundError
        ):  # code that goes on writing may have removed it
            yield name, os.stat(name, dir_fd=folder, follow_symlinks=False)


def _mark(status: os.stat_result) -> Mark:
    return Mark(status.st_ino, status.st_ctime_ns, status.st_size)


def _copy_folder(
    source: int,
    target: int,
    above: str,
    cost: Cost,
    seen: dict[str, Mark],
    before: Snapshot | None,
    depth: int,
) -> None:
    for name, status in _entries(source):
        path = f"{above}{name}"
        if stat.S_ISLNK(status.st_mode):
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
        elif stat.S_ISDIR(status.st_mode):
            if not depth:
                raise CheckpointError(
                    f"The work folder is nested more than {_DEEPEST} folders deep, and so cannot be copied."
                )
            with _inside(source, name) as inner, _made(target, name) as made:
                _copy_folder(inner, made, f"{path}/", cost, seen, before, depth - 1)
                _own_as(made, status)
        elif stat.S_ISREG(status.st_mode):
            mark = seen[path] = _mark(status)
            if (
                before is not None
                and before.seen.get(path) == mark
                and _link(before.path / path, target, name)
            ):
                cost.shared_bytes += status.st_size
            else:
                _copy_file(source, target, name, cost)
            cost.files += 1


@contextlib.contextmanager
def _inside(folder: int, name: str) -> Generator[int]:
    inner = os.open(name, _FOLDER, dir_fd=folder)
    try:
        yield inner
    finally:
        os.close(inner)


@contextlib.contextmanager
def _made(folder: int, name: str) -> Generator[int]:
    os.mkdir(name, 0o700, dir_fd=folder)
    with _inside(folder, name) as inner:
        yield inner


def _own_as(descriptor: int, status: os.stat_result) -> None:
    with contextlib.suppress(PermissionError):  # whoever is not root owns everything here anyway
        os.chown(descriptor, status.st_uid, status.st_gid)
    os.chmod(descriptor, stat.S_IMODE(status.st_mode) & 0o777)
    os.utime(descriptor, ns=(status.st_atime_ns, status.st_mtime_ns))


def _link(file: Path, target: int, name: str) -> bool:
    try:
        os.link(file, name, dst_dir_fd=target, follow_symlinks=False)
    except OSError:
        return False
    return True


def _copy_file(source: int, target: int, name: str, cost: Cost) -> None:
    opened = os.open(name, _READ, dir_fd=source)
    try:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            return
        made = os.open(name, _WRITE, 0o600, dir_fd=target)
        try:
            if _clone(opened, made):
                cost.shared_bytes += status.st_size
            else:
                cost.copy(min(status.st_size, status.st_blocks * 512))
                _copy_bytes(opened, made)
            _own_as(made, status)
        finally:
            os.close(made)
    finally:
        os.close(opened)


def _clone(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True


def _copy_bytes(source: int, target: int) -> None:
    """Copy what a file holds, and leave its holes: a file of a terabyte that was never written takes no space."""
    size, end = os.fstat(source).st_size, 0
    while end < size:
        try:
            start = os.lseek(source, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break  # a hole up to the end
            raise
        end = os.lseek(source, start, os.SEEK_HOLE)
        _copy_part(source, target, start, end)
    os.ftruncate(target, size)


def _copy_part(source: int, target: int, start: int, end: int) -> None:
    for descriptor in (source, target):
        os.lseek(descriptor, start, os.SEEK_SET)
    left = end - start
    while left > 0:
        try:
            count = os.copy_file_range(source, target, min(left, _CHUNK))
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            data = os.read(source, min(left, _CHUNK))
            count = len(data)
            while data:
                data = data[os.write(target, data) :]
        if count == 0:
            return  # it has become shorter meanwhile
        left -= count


def _restore_folder(source: int, target: int, above: str, cost: Cost, snapshot: Snapshot) -> None:
    wanted = dict(_entries(source))
    kept = set[str]()
    for name, status in list(_entries(target)):
        path = f"{above}{name}"
        was = wanted.get(name)
        if was is not None and stat.S_ISDIR(was.st_mode) and stat.S_ISDIR(status.st_mode):
            kept.add(name)
        elif (
            was is not None
            and stat.S_ISREG(was.st_mode)
            and snapshot.seen.get(path) == _mark(status)
        ):
            kept.add(name)
        else:
            _remove(target, name, status)
    for name, status in wanted.items():
        _restore_entry(source, target, above, name, status, name in kept, cost, snapshot)


def _restore_entry(
    source: int,
    target: int,
    above: str,
    name: str,
    status: os.stat_result,
    kept: bool,
    cost: Cost,
    snapshot: Snapshot,
) -> None:
    path = f"{above}{name}"
    if stat.S_ISDIR(status.st_mode):
        if not kept:
            os.mkdir(name, 0o700, dir_fd=target)
        with _inside(source, name) as inner, _inside(target, name) as made:
            _restore_folder(inner, made, f"{path}/", cost, snapshot)
            _own_as(made, status)
    elif stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
    elif kept:
        cost.shared_bytes += status.st_size
    else:
        _copy_file(source, target, name, cost)
        # What stands there now is what the snapshot holds: the next restore need not copy it again.
        snapshot.seen[path] = _mark(os.stat(name, dir_fd=target, follow_symlinks=False))
    cost.files += stat.S_ISREG(status.st_mode)


def _remove(folder: int, name: str, status: os.stat_result) -> None:
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=folder)
        return
    with _inside(folder, name) as inner:
        for below, what in list(_entries(inner)):
            _remove(inner, below, what)
    os.rmdir(name, dir_fd=folder)
