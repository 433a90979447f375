"""Measure what a block keeps in the folders that it can write to: bytes and files.

The kernel does not count writes to a filesystem in memory (tmpfs) in /proc/PID/io. So the growth of
the filesystems is compared with the limits. Others may use them too: only when they grew by more
than a limit, the server counts what has changed in the block's own folders.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
import struct
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..linux import syscalls
from ..linux.safe_folder import SafeFolder
from ..messages import MountSpec
from ..spec import CellLimits

# The clock of the times of files. The one of `time.time` may be some milliseconds ahead of it.
_CLOCK_REALTIME_COARSE = 5
_BYTES_PER_SECOND = 8 << 30  # no block writes faster
_SHORTEST_INTERVAL = 0.002  # seconds
_COUNT_SHARE = 10  # counting takes at most this part of the server's time
_MAX_DEPTH = 100
_BLOCK_BYTES = 512  # the unit of st_blocks
_AMOUNT = struct.Struct("<2d")


class _Amount(NamedTuple):
    bytes: float
    files: float


class WritableFolders:
    """The folders at `paths`, which blocks can write to, and the filesystems that hold them.

    users   the user namespace, as a path in /proc, of users whose files this process cannot look
            at. It owns the namespace. "": it can
    """

    def __init__(self, paths: Iterable[str], users: str = "") -> None:
        self.paths, self._users = list(dict.fromkeys(paths)), users
        self._path_by_device = dict[int, str]()
        for path in self.paths:
            with contextlib.suppress(OSError):
                self._path_by_device[os.stat(path).st_dev] = path

    @property
    def devices(self) -> set[int]:
        """The device numbers of the filesystems."""
        return set(self._path_by_device)

    def used(self) -> list[_Amount]:
        """Return the usage of each filesystem. Infinity: this filesystem does not count it."""
        return [_used(path) for path in self._path_by_device.values()]

    def call_with_rights(self, count: Callable[[], _Amount | None]) -> _Amount | None:
        """Return what `count` returns with the rights to look at all files. None: it failed."""
        if not self._users:
            return count()
        with contextlib.suppress(OSError):
            return _call_in_namespace(self._users, count)
        return None


def _call_in_namespace(users: str, count: Callable[[], _Amount | None]) -> _Amount | None:
    """Call `count` in a fork that has all rights over the users of the namespace `users`."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    with open(reader, "rb") as file:
        try:
            pid = syscalls.fork_without_hooks()
            if pid == 0:
                try:
                    syscalls.setns(os.open(users, os.O_RDONLY), syscalls.CLONE_NEWUSER)
                    if (found := count()) is not None:
                        os.write(writer, _AMOUNT.pack(*found))
                finally:
                    os._exit(0)
        finally:
            os.close(writer)
        data = file.read()
    os.waitpid(pid, 0)
    return _Amount(*_AMOUNT.unpack(data)) if data else None


def mounted_folders(mounts: Iterable[MountSpec]) -> WritableFolders:
    """Return the writable ones of the folders that are mounted for a tenant, session or block."""
    return WritableFolders(mount.source for mount in mounts if mount.writable)


class StorageMeter:
    """Measure what one block keeps in `folders`, from now on.

    Blocks that run at the same time in the same folders are counted together.
    """

    def __init__(self, folders: WritableFolders, limits: CellLimits) -> None:
        self._folders = folders
        self._max_bytes = limits.written_bytes or math.inf
        self._max_files = limits.files or math.inf
        is_limited = min(self._max_bytes, self._max_files) < math.inf
        self._before = folders.used() if is_limited else []
        self._started = time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)
        self._bytes_left = self._max_bytes
        self._count_at = 0.0

    def check_after(self, interval: float) -> float:
        """Return the seconds until the next check: `interval`, or less near the limit."""
        return min(interval, max(_SHORTEST_INTERVAL, self._bytes_left / _BYTES_PER_SECOND))

    def exceeded_limit(self, written_bytes: int, pids: Iterable[int]) -> str | None:
        """Return the name of the limit that the block exceeds, or None.

        `written_bytes` is what the kernel counts for its processes `pids`.
        """
        if written_bytes > self._max_bytes:
            return "written_bytes"
        growth = self._growth()
        if growth.bytes <= self._max_bytes and growth.files <= self._max_files:
            self._bytes_left = self._max_bytes - max(written_bytes, growth.bytes)
            return None
        started = time.monotonic()
        if started < self._count_at:
            return None
        found = self._folders.call_with_rights(lambda: self._count(pids))
        self._count_at = started + (1 + _COUNT_SHARE) * (time.monotonic() - started)
        # What could not be counted is taken for the block's.
        kept = growth if found is None else found
        self._bytes_left = self._max_bytes - max(written_bytes, min(kept.bytes, growth.bytes))
        if min(kept.bytes, growth.bytes) > self._max_bytes:
            return "written_bytes"
        return "files" if min(kept.files, growth.files) > self._max_files else None

    def _count(self, pids: Iterable[int]) -> _Amount | None:
        """Return what the block keeps, or None if not everything could be looked at."""
        count = _Count(self._started)
        count.add_folders(self._folders.paths)
        count.add_removed_files(pids, self._folders.devices)
        return count.amount if count.is_complete else None

    def limit_exceeded_at_end(self) -> str | None:
        """Return the limit that a block exceeds which has ended, perhaps before any check."""
        self._count_at = 0.0
        return self.exceeded_limit(0, ())

    def _growth(self) -> _Amount:
        """Return by how much the filesystems have grown, in sum."""
        pairs = list(zip(self._before, self._folders.used() if self._before else [], strict=True))
        return _Amount(
            sum(_difference(now.bytes, before.bytes) for before, now in pairs),
            sum(_difference(now.files, before.files) for before, now in pairs),
        )


class _Count:
    """Count what was made or changed since `started`, in nanoseconds.

    amount        what was found
    is_complete   everything could be looked at
    """

    def __init__(self, started: int) -> None:
        self._started = started
        self._bytes = self._files = 0
        self.is_complete = True

    @property
    def amount(self) -> _Amount:
        return _Amount(self._bytes, self._files)

    def add_folders(self, paths: Iterable[str]) -> None:
        """Add the contents of the folders at `paths`."""
        for path in paths:
            with contextlib.suppress(OSError), SafeFolder.at(path) as folder:
                self._add_folder(folder, _MAX_DEPTH)

    def add_removed_files(self, pids: Iterable[int], devices: set[int]) -> None:
        """Add files on `devices` that have no name any more, but are open in a process."""
        seen = set[tuple[int, int]]()
        for pid in pids:
            with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as links:
                for link in links:
                    with contextlib.suppress(OSError):
                        status = link.stat()
                        file = status.st_dev, status.st_ino
                        if not status.st_nlink and file[0] in devices and file not in seen:
                            seen.add(file)
                            self._add(status)

    def _add_folder(self, folder: SafeFolder, depth: int) -> None:
        """Add the contents of `folder`."""
        for name, status in folder.statuses():
            is_changed = self._add(status)
            if not stat.S_ISDIR(status.st_mode):
                continue
            if not depth:
                self.is_complete = False
                continue
            try:
                with folder.folder(name) as inner:
                    self._add_folder(inner, depth - 1)
            except FileNotFoundError:  # it was removed meanwhile
                pass
            except OSError:  # for example without permission
                self.is_complete = self.is_complete and not is_changed

    def _add(self, status: os.stat_result) -> bool:
        """Add a file or folder, and return True, if it was changed since the start."""
        if status.st_ctime_ns < self._started:
            return False
        self._bytes += status.st_blocks * _BLOCK_BYTES
        self._files += 1
        return True


def _used(path: str) -> _Amount:
    try:
        found = os.statvfs(path)
    except OSError:
        return _Amount(0, 0)
    return _Amount(
        (found.f_blocks - found.f_bfree) * found.f_frsize if found.f_blocks else math.inf,
        found.f_files - found.f_ffree if found.f_files else math.inf,
    )


def _difference(now: float, before: float) -> float:
    return math.inf if now == math.inf else max(0, now - before)
