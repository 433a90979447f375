"""What a block can change in its cell: temporary filesystems, terminals and message queues.

`CellFilesystem.reset` replaces each filesystem that a block has touched, so that the next block in
the same cell finds nothing of it.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..linux import syscalls
from ..spec import ZygoteSpec

_CLOCK_REALTIME_COARSE = 5  # the clock of file times; `time` has no name for it
_FULL_BYTES = 1 << 16  # that are free in a filesystem that is as good as full
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
    """The temporary folders, terminals, and System V and POSIX message objects of one cell."""

    def __init__(self, spec: ZygoteSpec) -> None:
        self._spec, self._namespaces = spec, spec.namespaces
        # The temporary folders will hide these; an open descriptor still reaches them.
        self._below = {path: os.open(path, os.O_PATH) for path in spec.below_tmpfs}
        self._watched: dict[Callable[[], None], list[str]] = {}  # by what mounts them
        if spec.tmpfs:
            folders = [path for path, _ in spec.tmpfs]
            # A change in a folder between the mount point and a deeper target does not show at the
            # top.
            between = {found for path in folders for found in _folders_between(path, self._below)}
            self._watched[self._mount_temporary] = [*folders, *sorted(between)]
        if self._namespaces:
            # `ptmx` belongs to the cell's own mount of devpts.
            self._watched[self._mount_terminals] = [syscalls.DEVPTS, f"{syscalls.DEVPTS}/ptmx"]
        self._pristine: dict[Callable[[], None], _PristineState] = {}
        self._first = True

    def reset(self) -> bool:
        """Undo all changes of earlier blocks. Return True if a filesystem was mounted again."""
        changed, self._first = self._first, False
        if self._namespaces:
            _new_ipc_namespace()
        for mount, watched in self._watched.items():
            if not self._is_pristine(mount):
                mount()
                self._pristine[mount] = _PristineState(watched)
                changed = True
        return changed

    def _is_pristine(self, mount: Callable[[], None]) -> bool:
        before = self._pristine.get(mount)
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

    def _mount_temporary(self) -> None:
        if self._mount_temporary in self._pristine:
            unmount_temporary_folders(self._spec)
        mount_temporary_folders(self._spec)
        for target, handle in self._below.items():
            bind_mount(f"/proc/self/fd/{handle}", target)

    def _mount_terminals(self) -> None:
        if self._mount_terminals in self._pristine:
            syscalls.unmount(syscalls.DEVPTS, syscalls.MNT_DETACH)
        syscalls.mount_devpts()

    def close_handles(self) -> None:
        """Close the open folders. User code must not inherit them."""
        for handle in self._below.values():
            os.close(handle)


def mount_temporary_folders(spec: ZygoteSpec) -> None:
    """Mount the temporary folders of a cell: parts of one filesystem, which has one size.

    With one each, their sizes would have to be small, or exceed the memory of the cell in sum.
    """
    base = spec.tmpfs[0][0]
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
    syscalls.mount("tmpfs", base, "tmpfs", flags, spec.tmpfs_options)
    for path, mode in reversed(spec.tmpfs):  # the last one hides the whole
        part = f"{base}/{path.replace('/', '-')}"
        os.mkdir(part)
        os.chmod(part, mode)
        syscalls.mount(part, path, None, syscalls.MS_BIND)


def describe_full(folders: Sequence[str], path: str = "") -> str:
    """Return the error that the temporary `folders` are full, or that one had no room for `path`.

    "": they are not, or it is not in them.
    """
    if not folders:
        return ""
    found = os.statvfs(folders[0])
    is_full = found.f_bfree * found.f_frsize < _FULL_BYTES or not found.f_ffree
    if not is_full and not path.startswith(tuple(f"{folder}/" for folder in folders)):
        return ""
    size = f"{found.f_blocks * found.f_frsize >> 20} MiB"
    text = f"{', '.join(folders)} are full: these folders are in memory, of which they may hold"
    return f"{text} {size} and {found.f_files} files (memory_bytes, tmp_bytes)"


def unmount_temporary_folders(spec: ZygoteSpec) -> None:
    """Unmount them with everything that is mounted on them."""
    for path in (*(path for path, _ in spec.tmpfs), spec.tmpfs[0][0]):
        syscalls.unmount(path, syscalls.MNT_DETACH)


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
