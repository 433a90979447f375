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
_LONGEST_INTERVAL = 10.0
_MEMORY_SHARE = 4
_MAX_DEPTH = 100
_BLOCK_BYTES = 512  # the unit of st_blocks
_AMOUNT = struct.Struct("<2d")


class _Amount(NamedTuple):
    bytes: float
    files: float

    def at_most(self, other: _Amount) -> _Amount:
        """Return the smaller of each."""
        return _Amount(min(self.bytes, other.bytes), min(self.files, other.files))

    def without(self, other: _Amount) -> _Amount:
        """Return the difference of each. Infinity stays."""
        return _Amount(_difference(self.bytes, other.bytes), _difference(self.files, other.files))


# How far above a limit a command may still start. What exceeds one has that much when it is ended.
_ROOM = _Amount(32 << 20, 1000)


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

    def in_memory(self) -> WritableFolders:
        """Return those that are on a filesystem in memory."""
        found = [path for path in self.paths if _is_in_memory(path)]
        return WritableFolders(found, self._users)

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

    def __init__(self, folders: WritableFolders, limits: CellLimits, room: _Amount = _ROOM) -> None:
        self._folders, self._room = folders, room
        self._limits = _Amount(limits.written_bytes or math.inf, limits.files or math.inf)
        self._most = self._limits
        is_limited = min(self._most) < math.inf
        self._before = folders.used() if is_limited else []
        self._started = time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)
        self._found = self._others = _Amount(0, 0)  # what is the block's of the growth, and is not
        self._bytes_left = self._most.bytes
        self._count_at = 0.0

    def check_after(self, interval: float) -> float:
        """Return the seconds until the next check: `interval`, or less near the limit."""
        return min(interval, max(_SHORTEST_INTERVAL, self._bytes_left / _BYTES_PER_SECOND))

    def exceeded_limit(
        self, written_bytes: int, pids: Iterable[int], *, at_end: bool = False
    ) -> str | None:
        """Return the name of the limit that the block exceeds, or None. `at_end`: it has ended.

        `written_bytes` is what the kernel counts for its processes `pids`.
        """
        self._found = _Amount(written_bytes, 0)
        if written_bytes > self._most.bytes:
            return "written_bytes"
        growth = self._growth()
        self._others = growth.at_most(self._others)
        own = growth.without(self._others)
        started = time.monotonic()
        if own.bytes > self._most.bytes or own.files > self._most.files:
            if started < self._count_at and not at_end:
                return None
            found = self._folders.call_with_rights(lambda: self._count(pids))
            self._count_at = started + (1 + _COUNT_SHARE) * (time.monotonic() - started)
            # What could not be counted is taken for the block's.
            own = growth if found is None else growth.at_most(found)
            self._others = growth.without(own)
        self._found = _Amount(max(written_bytes, own.bytes), own.files)
        self._bytes_left = self._most.bytes - self._found.bytes
        if own.bytes > self._most.bytes:
            return "written_bytes"
        return "files" if own.files > self._most.files else None

    def hold_to_limits(self) -> None:
        """Undo `let_go_on`."""
        self._most = self._limits

    def let_go_on(self) -> None:
        """Let what exceeds a limit by little go on, if it adds next to nothing.

        So commands can remove what is too much, and cannot add to it again and again.
        """
        self._most = _Amount(
            _with_room(self._limits.bytes, self._found.bytes, self._room.bytes),
            _with_room(self._limits.files, self._found.files, self._room.files),
        )

    def _count(self, pids: Iterable[int]) -> _Amount | None:
        """Return what the block keeps, or None if not everything could be looked at."""
        count = _Count(self._started)
        count.add_folders(self._folders.paths)
        count.add_removed_files(pids, self._folders.devices)
        return count.amount if count.is_complete else None

    def limit_exceeded_at_end(self) -> str | None:
        """Return the limit that a block exceeds which has ended, perhaps before any check."""
        return self.exceeded_limit(0, (), at_end=True)

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


class SessionStorage:
    """Measure what a session with a box keeps in `folders` and writes, from its start to its end.

    That is of its commands, what they leave, the files that are written for it, and its blocks.
    Files in memory may hold a quarter of the memory limit: besides them are the temporary folders.

    is_memory_full   they held more at the last check
    """

    def __init__(self, folders: WritableFolders, limits: CellLimits) -> None:
        self._written, self._measure_at = 0, 0.0
        self.is_memory_full = False
        self._all = StorageMeter(folders, limits)
        memory = CellLimits(written_bytes=(limits.memory_bytes or 0) // _MEMORY_SHARE)
        in_memory = folders.in_memory() if limits.memory_bytes else WritableFolders(())
        self._in_memory = None
        if in_memory.paths:
            self._in_memory = StorageMeter(in_memory, memory, _Amount(0, 0))
        self._meters = [meter for meter in (self._all, self._in_memory) if meter is not None]

    def check_after(self, interval: float) -> float:
        """Return the seconds until the next check. See `StorageMeter`."""
        if self._in_memory is not None:
            interval = self._in_memory.check_after(interval)
        return self._all.check_after(interval)

    def exceeded_limit(
        self, written: Callable[[], int], pids: Callable[[], list[int]], *, at_end: bool
    ) -> str | None:
        """Return the name of the limit that is exceeded, or None. `at_end`: a command has ended.

        `written` returns what the kernel has counted. It is called if that can have become too much
        since the last call.
        """
        now = time.monotonic()
        if now >= self._measure_at:
            self._written = written()
        found = (pid for list_pids in (pids,) for pid in list_pids())  # not before it is used
        memory = self._in_memory
        self.is_memory_full = bool(memory and memory.exceeded_limit(0, found, at_end=at_end))
        if self.is_memory_full:
            return "memory_bytes"
        limit = self._all.exceeded_limit(self._written, found, at_end=at_end)
        if limit is None and now >= self._measure_at:
            self._measure_at = now + self._all.check_after(_LONGEST_INTERVAL)
        return limit

    def let_go_on(self) -> None:
        """See `StorageMeter`."""
        for meter in self._meters:
            meter.let_go_on()

    def hold_to_limits(self) -> None:
        """See `StorageMeter`."""
        for meter in self._meters:
            meter.hold_to_limits()


def _with_room(limit: float, found: float, room: float) -> float:
    return min(max(limit, found + limit / 64), limit + max(limit / 8, room))


def _is_in_memory(path: str) -> bool:
    """Return True if the file at `path` is on a tmpfs or ramfs."""
    with contextlib.suppress(OSError):
        device = os.stat(path).st_dev
        if os.major(device):
            return False
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                mount, _, filesystem = line.partition(" - ")
                if mount.split()[2] == f"{os.major(device)}:{os.minor(device)}":
                    return filesystem.split()[0] in ("tmpfs", "ramfs")
    return False


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
