"""Mounts: a root of its own that holds what was named, and nothing else."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from ...runtime.cell.init import make_target
from ...runtime.linux import syscalls
from .chown import Owner, change_owner
from .namespaces import owner_map

_AT_EMPTY_PATH, _AT_RECURSIVE = 0x1000, 0x8000
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
_AT_FDCWD = -100
_RDONLY, _NOSUID, _NODEV, _IDMAP = 1, 2, 4, 0x100000


class Tree(NamedTuple):
    """A copy of a mounted folder or file, held by a descriptor and not yet mounted anywhere."""

    descriptor: int
    target: str
    is_folder: bool


Maps = dict[tuple[int, int], int]


def open_trees(mounts: Iterable[dict[str, Any]], map_to: int | None, maps: Maps) -> list[Tree]:
    """Take hold of what `mounts` name, with its rights set, before the view of the machine changes.

    A mount is ``{"source", "target", "writable", "own", "mapped", "device"}``. With `map_to` (root only) the owner of a
    mapped one appears as that user, and what that user makes belongs to the owner; `maps` keeps what that takes for the next.
    """
    return [_open_tree(mount, map_to if mount["mapped"] else None, maps) for mount in mounts]


def _open_tree(mount: dict[str, Any], map_to: int | None, maps: Maps) -> Tree:
    source: str = mount["source"]
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_RECURSIVE
    descriptor = syscalls.syscall(
        syscalls.OPEN_TREE, _AT_FDCWD, os.fsencode(source), flags, name=f"open_tree {source}"
    )
    rights = _NOSUID | (0 if mount["device"] else _NODEV) | (0 if mount["writable"] else _RDONLY)
    _set_rights(descriptor, rights)
    if map_to is not None:
        _map_owner(descriptor, mount, map_to, maps)
    return Tree(descriptor, mount["target"], os.path.isdir(source))


def _set_rights(descriptor: int, rights: int, users: int = 0, flags: int = _AT_RECURSIVE) -> None:
    # Private, or what the machine mounts below it later would appear inside, with rights of its own.
    attributes = struct.pack("<4Q", rights, 0, syscalls.MS_PRIVATE, users)
    syscalls.syscall(
        syscalls.MOUNT_SETATTR,
        descriptor,
        b"",
        _AT_EMPTY_PATH | flags,
        attributes,
        len(attributes),
        name="mount_setattr",
    )


def _map_owner(descriptor: int, mount: dict[str, Any], user: int, maps: Maps) -> None:
    source: str = mount["source"]
    status = os.stat(source)
    owner = status.st_uid, status.st_gid
    if owner not in maps:
        maps[owner] = owner_map(owner, user)
    try:
        _set_rights(descriptor, _IDMAP, maps[owner], flags=0)
    except OSError:
        if mount["own"]:
            _change_owner(source, owner, user)
        elif mount["writable"]:
            raise _cannot_map(source) from None
        # What is only read stays as it is: its own rights decide.


def _change_owner(source: str, owner: Owner, user: int) -> None:
    """Make a folder that is an executor's own that of its cells, until the executor stops: see `executors.lending`."""
    try:
        change_owner(source, owner, (user, user))
    except OSError:
        raise _cannot_map(source) from None


def _cannot_map(source: str) -> OSError:
    text = f"the filesystem of {source} cannot map owners, which a caller that is root needs"
    return OSError(errno.EINVAL, text)


def build_root(box: dict[str, Any], trees: list[Tree], base: str = "/tmp") -> None:
    """Enter a new root, let go of the old one, and furnish the new one.

    In this order, because targets below the work folder go through what code has left there: a link must not lead out.
    """
    enter_root(base)
    for folder in box["folders"]:
        os.makedirs(folder, exist_ok=True)
    for path, target in box["links"].items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(target, path)
    for path, text in box["files"].items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
    for tree in trees:
        _attach(tree)
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    _set_rights(root, _RDONLY, flags=0)
    os.close(root)


def enter_root(base: str) -> None:
    """Be in a root that is empty but for /proc, made on `base`, and let go of the old one."""
    syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.mount(
        "tmpfs", base, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "size=8m,mode=755"
    )
    os.mkdir(f"{base}/proc")
    # While the old root's /proc is still in view: without it the kernel refuses a new one.
    syscalls.mount(
        "proc", f"{base}/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    )
    os.chdir(base)
    syscalls.pivot_root(".", ".")
    syscalls.unmount(".", syscalls.MNT_DETACH)
    os.chdir("/")


def _attach(tree: Tree) -> None:
    make_target(tree.target, is_folder=tree.is_folder)
    syscalls.attach(tree.descriptor, tree.target)
    os.close(tree.descriptor)
