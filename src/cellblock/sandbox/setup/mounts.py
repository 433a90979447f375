"""Mount a root that contains only what the spec names. The list is in `backends/sandbox.py`."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterable
from typing import NamedTuple

from ...runtime.cell.filesystem import give_to_root, make_target
from ...runtime.linux import syscalls
from ...runtime.linux.id_maps import UserMaps
from ...runtime.messages import MountSpec
from ...runtime.spec import SandboxSpec, SubIds
from .chown import Owner, chown_tree
from .namespaces import lines_of_owner, open_id_map

_AT_EMPTY_PATH, _AT_RECURSIVE = 0x1000, 0x8000
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
_RDONLY, _NOSUID, _NODEV, _IDMAP = 1, 2, 4, 0x100000


class MountTree(NamedTuple):
    """A detached copy of a folder or file, which is not mounted anywhere yet; see open_tree(2)."""

    descriptor: int
    target: str
    is_folder: bool


class OwnerMap(NamedTuple):
    """As root only: the owner of a mapped mount appears as `user`, and owns what that creates.

    Files of `sub_ids` stay theirs. In a root file system that belongs to root, each user has its
    files, by `lines_of_root`. `namespaces` has descriptors of user namespaces, for later calls.
    """

    user: int
    sub_ids: SubIds | None
    lines_of_root: UserMaps | None
    namespaces: dict[UserMaps, int]


def open_trees(mounts: Iterable[MountSpec], owners: OwnerMap | None) -> list[MountTree]:
    """Open what `mounts` name, with its attributes set, before the host disappears from view."""
    trees = list[MountTree]()
    try:
        for mount in mounts:
            trees.append(_open_tree(mount, owners if mount.mapped else None))
    except BaseException:
        for tree in trees:
            os.close(tree.descriptor)
        raise
    return trees


def _open_tree(mount: MountSpec, owners: OwnerMap | None) -> MountTree:
    opened = _open_below(mount.source, mount.below)
    try:
        is_folder = stat.S_ISDIR(os.fstat(opened).st_mode)
        descriptor = _clone_tree(opened, mount.source)
    finally:
        os.close(opened)
    attributes = _NOSUID | (0 if mount.device else _NODEV) | (0 if mount.writable else _RDONLY)
    try:
        _set_attributes(descriptor, attributes)
        if owners is not None:
            _map_owner(descriptor, mount, owners)
    except BaseException:
        os.close(descriptor)
        raise
    return MountTree(descriptor, mount.target, is_folder)


def _open_below(source: str, below: str) -> int:
    """Open `source`, or the path `below` it, in which code may have replaced any name by a link.

    Not with `SafeFolder`: open_tree(2) takes files too, and needs no right to read.
    """
    opened = os.open(source, os.O_PATH | os.O_CLOEXEC)
    for name in below.split("/") if below else ():
        try:
            inner = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=opened)
        finally:
            os.close(opened)
        opened = inner
    if below and stat.S_ISLNK(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.ELOOP, f"{below} in {source} was replaced by a symbolic link")
    return opened


def _clone_tree(opened: int, source: str) -> int:
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_RECURSIVE | _AT_EMPTY_PATH
    return syscalls.syscall(syscalls.OPEN_TREE, opened, b"", flags, name=f"open_tree {source}")


def _set_attributes(
    descriptor: int, attributes: int, users: int = 0, flags: int = _AT_RECURSIVE
) -> None:
    # Private: otherwise later mounts of the host below it would appear in the sandbox, with their
    # own attributes.
    structure = struct.pack("<4Q", attributes, 0, syscalls.MS_PRIVATE, users)
    syscalls.syscall(
        syscalls.MOUNT_SETATTR,
        descriptor,
        b"",
        _AT_EMPTY_PATH | flags,
        structure,
        len(structure),
        name="mount_setattr",
    )


def _map_owner(descriptor: int, mount: MountSpec, owners: OwnerMap) -> None:
    source = mount.source
    status = os.stat(source)
    owner = status.st_uid, status.st_gid
    lines = owners.lines_of_root
    if lines is None or not mount.has_users or owner != (0, 0):
        lines = lines_of_owner(owner, owners.user, owners.sub_ids)
    if lines not in owners.namespaces:
        owners.namespaces[lines] = open_id_map(lines)
    try:
        _set_attributes(descriptor, _IDMAP, owners.namespaces[lines], flags=0)
    except OSError:
        if mount.owned:
            _chown_tree(source, owner, owners.user)
        elif mount.writable and not mount.below:
            raise _id_map_error(source) from None
        # A read-only mount stays as it is: the modes of its files decide. So does a path in the
        # work folder, whose owner was changed with it.


def _chown_tree(source: str, owner: Owner, user: int) -> None:
    """Let the cells own an executor's folder until the executor stops.

    See `executors.workspace.ownership_lease`.
    """
    try:
        chown_tree(source, owner, (user, user))
    except OSError:
        raise _id_map_error(source) from None


def _id_map_error(source: str) -> OSError:
    text = (
        f"the file system of {source} does not support ID-mapped mounts, which root needs; "
        "use another folder, or do not run as root"
    )
    return OSError(errno.EINVAL, text)


def build_root(sandbox: SandboxSpec, trees: list[MountTree], base: str = "/tmp") -> None:
    """Enter a new root, detach the old one, and populate the new one.

    In this order, because targets below the work folder may contain symbolic links that code
    created, and these must not lead out of the sandbox.
    """
    enter_root(base)
    for folder in sandbox.folders:
        os.makedirs(folder, exist_ok=True)
    for path, target in sandbox.links.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(target, path)
    for mode, files in ((0o644, sandbox.files), (0o755, sandbox.scripts)):
        for path, text in files.items():
            os.makedirs(os.path.dirname(path), exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, mode)
            with open(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(text)
    for tree in trees:
        _attach(tree)
    if sandbox.sub_ids is not None:
        give_to_root("/", os.stat("/").st_dev)
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    _set_attributes(root, _RDONLY, flags=0)
    os.close(root)


def enter_root(base: str) -> None:
    """Enter a new root on `base` that only contains /proc, and detach the old root."""
    syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.mount(
        "tmpfs", base, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "size=64m,mode=755"
    )
    os.mkdir(f"{base}/proc")
    # While the old /proc is still visible: without it the kernel refuses a new one.
    syscalls.mount(
        "proc", f"{base}/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    )
    os.chdir(base)
    syscalls.pivot_root(".", ".")
    syscalls.unmount(".", syscalls.MNT_DETACH)
    os.chdir("/")


def _attach(tree: MountTree) -> None:
    make_target(tree.target, is_folder=tree.is_folder)
    syscalls.attach_mount(tree.descriptor, tree.target)
    os.close(tree.descriptor)
