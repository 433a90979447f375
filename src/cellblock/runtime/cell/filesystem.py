"""What a block can change in its cell: temporary filesystems, terminals and message queues.

`CellFilesystem.reset` replaces each filesystem that a block has touched, so that the next block in
the same cell finds nothing of it.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable
from typing import Any

from ..linux import syscalls
from ..spec import ZygoteSpec

_CLOCK_REALTIME_COARSE = 5  # the clock of file times; `time` has no name for it
_MAX_TICK_NS = 20_000_000  # the coarse clock advances at least this often

_new_ipc_namespace = syscalls.PreparedCall("unshare", "unshare", syscalls.CLONE_NEWIPC)


class _PristineState:
    """The state of a fresh filesystem: the status of its folders, their names, the last change."""

    def __init__(self, folders: list[str]) -> None:
        self.folders = [(folder, _status(folder)) for folder in folders]
        self.names = _names(self.folders)
        self.changed = max(ctime for _, (_, _, ctime, _, _) in self.folders)
        # Whether the clock has moved on, so that any later change also changes a time.
        self.settled = False


class CellFilesystem:
    """The temporary filesystems, terminals, and System V and POSIX message objects of one cell."""

    def __init__(self, spec: ZygoteSpec) -> None:
        self._namespaces = spec.namespaces
        self._options = dict(spec.tmpfs)
        # The temporary filesystems will hide these folders; an open descriptor still reaches them.
        self._below = {path: os.open(path, os.O_PATH) for path in spec.below_tmpfs}
        # A change in a folder between the mount point and a deeper target does not show at the top.
        self._watched = {
            path: [path, *sorted(_folders_between(path, self._below))] for path in self._options
        }
        if self._namespaces:
            # `ptmx` belongs to the cell's own mount of devpts.
            terminals = [syscalls.DEVPTS, f"{syscalls.DEVPTS}/ptmx"]
            self._watched[syscalls.DEVPTS] = terminals
        self._pristine: dict[str, _PristineState] = {}
        self._first = True

    def reset(self) -> bool:
        """Undo all changes of earlier blocks. Return True if a filesystem was mounted again."""
        changed, self._first = self._first, False
        if self._namespaces:
            _new_ipc_namespace()
        for path in self._watched:
            if not self._is_pristine(path):
                self._mount(path)
                changed = True
        return changed

    def _is_pristine(self, path: str) -> bool:
        before = self._pristine.get(path)
        if before is None:
            return False
        for folder, status in before.folders:
            if _status(folder) != status:
                return False
        if not before.settled:
            if _names(before.folders) != before.names:
                return False
            # Until the coarse clock has moved on, a change may leave the times as they were.
            now = time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)
            before.settled = now > before.changed + _MAX_TICK_NS
        return True

    def _mount(self, path: str) -> None:
        """Mount a fresh filesystem on `path` instead of the one that a block has touched."""
        if path in self._pristine:
            syscalls.unmount(path, syscalls.MNT_DETACH)
        if path == syscalls.DEVPTS:
            syscalls.mount_devpts()
        else:
            flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
            syscalls.mount("tmpfs", path, "tmpfs", flags, self._options[path])
        for target, handle in self._below.items():
            if target.startswith(f"{path}/"):
                bind_mount(f"/proc/self/fd/{handle}", target)
        self._pristine[path] = _PristineState(self._watched[path])

    def close_handles(self) -> None:
        """Close the open folders. User code must not inherit them."""
        for handle in self._below.values():
            os.close(handle)


def _status(path: str) -> tuple[int, int, int, int, int]:
    # Creating, removing or renaming an entry of a folder, or changing its mode, sets its ctime.
    status = os.stat(path)
    return status.st_dev, status.st_mode, status.st_ctime_ns, status.st_mtime_ns, status.st_size


def _names(folders: list[tuple[str, Any]]) -> list[list[str]]:
    return [os.listdir(folder) for folder, _ in folders if os.path.isdir(folder)]


def _folders_between(folder: str, targets: Iterable[str]) -> set[str]:
    """Return the folders between `folder` and those of `targets` that are below it."""
    found = set[str]()
    for target in targets:
        parent = os.path.dirname(target)
        while parent.startswith(f"{folder}/"):
            found.add(parent)
            parent = os.path.dirname(parent)
    return found


def make_target(target: str, *, is_folder: bool) -> None:
    """Create the folder or empty file that something will be mounted on, unless it exists."""
    if is_folder:
        os.makedirs(target, exist_ok=True)
    elif not os.path.lexists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))


def give_to_root(path: str, device: int) -> None:
    """Let root own what is in a folder, itself included, on the filesystem `device`."""
    os.chown(path, 0, 0, follow_symlinks=False)
    if stat.S_ISDIR(os.lstat(path).st_mode):
        for entry in os.scandir(path):
            if entry.stat(follow_symlinks=False).st_dev == device:
                give_to_root(entry.path, device)


def bind_mount(source: str, target: str) -> None:
    """Bind-mount the folder or file `source` on `target`, which is created if it is missing."""
    make_target(target, is_folder=os.path.isdir(source))
    syscalls.mount(source, target, None, syscalls.MS_BIND | syscalls.MS_REC)


def attach_mounts(targets: Iterable[str], mounts: Iterable[int]) -> None:
    """Attach the detached mounts `mounts`, given as descriptors, to `targets`."""
    for target, mount in zip(targets, mounts, strict=True):
        make_target(target, is_folder=stat.S_ISDIR(os.fstat(mount).st_mode))
        syscalls.attach_mount(mount, target)
