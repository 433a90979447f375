"""The root file system of a box's commands, if it is not that of the sandbox.

The mount broker hands in two folders of this machine: an image, which boxes share, and one for what
this box changes. The kernel joins them by overlayfs. The live Python stays in the sandbox's root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable
from typing import Final

from ..linux import syscalls
from ..linux.safe_folder import SafeFolder
from ..spec import ZygoteSpec
from .filesystem import give_to_root

IMAGE: Final = "/run/box/image"
# Where the folder for changes is mounted, and then on it the root. So only that can be seen.
ROOT: Final = "/run/box/root"
# Folders in the one for changes: what is changed, and one that only overlayfs uses. Or all files.
UPPER: Final = "upper"
_WORK = "work"
COPY: Final = "copy"
# What a network of this machine needs. They are in /etc.
NETWORK_FILES: Final = ("/etc/hosts", "/etc/resolv.conf")
_MAX_IMAGE_BYTES = 1 << 20  # of a file in /etc of an image


def mount_root(spec: ZygoteSpec, *, has_users: bool) -> None:
    """Mount the root. The `shared_paths` are in it what they are outside of it.

    What is created here belongs to root if the box `has_users`. The folder for changes may hold
    those of the box that this one was forked from. Raise `OSError`.
    """
    existing = [path for path in spec.shared_paths if os.path.exists(path)]

    def prepare(folder: str) -> None:
        _prepare(folder, existing, has_network=not spec.own_network, has_users=has_users)

    if os.path.isdir(f"{ROOT}/{COPY}"):
        _mount_copy(prepare)
    else:
        prepare(f"{ROOT}/{UPPER}")
        try:
            _mount_overlay()
        except OSError:  # this kernel, or the file system of the folder, does not allow it
            _mount_copy(prepare)
    for path in existing:
        syscalls.mount(path, f"{ROOT}{path}", None, syscalls.MS_BIND | syscalls.MS_REC)


def _mount_overlay() -> None:
    upper, work = f"{ROOT}/{UPPER}", f"{ROOT}/{_WORK}"
    os.makedirs(work, exist_ok=True)
    # Only attributes that users may set: we have no rights on this machine.
    options = f"lowerdir={IMAGE},upperdir={upper},workdir={work},userxattr"
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
    syscalls.mount("overlay", ROOT, "overlay", flags, options)


def _mount_copy(prepare: Callable[[str], None]) -> None:
    copy = f"{ROOT}/{COPY}"
    is_new = not os.path.isdir(copy)
    prepare(copy)
    if is_new:
        _copy_missing(IMAGE, copy)
    syscalls.mount(copy, ROOT, None, syscalls.MS_BIND)


def _prepare(
    folder: str, mount_points: Iterable[str], *, has_network: bool, has_users: bool
) -> None:
    """Create in `folder` what is different from the image."""
    is_new = not os.path.isdir(folder)
    os.makedirs(folder, exist_ok=True)
    with SafeFolder.at(folder) as opened:
        for path in mount_points:
            _make_mount_point(opened, path)
        if is_new:
            _add_user(opened)
            _add_network_files(opened, has_network=has_network)
    if is_new and has_users:
        give_to_root(folder, os.stat(folder).st_dev)


def enter_root() -> None:
    """Let this process have `ROOT` as its root, before it drops the right to change that.

    Not by a mount namespace: to copy one and remove most of it takes a millisecond.
    """
    os.chroot(ROOT)
    os.chdir("/")


def _make_mount_point(top: SafeFolder, path: str) -> None:
    """Create what `path` is mounted on. It hides what the image has there, also a link."""
    *above, name = path.strip("/").split("/")
    with contextlib.ExitStack() as stack:
        folder = top
        for part in above:
            folder = stack.enter_context(folder.folder(part, create=True))
        if os.path.isdir(path):
            folder.folder(name, create=True).close()
        else:
            with contextlib.suppress(FileExistsError):
                os.close(folder.create_file(name))


def _add_user(top: SafeFolder) -> None:
    """Add the user of the box to those of the image, whose programs ask for its name."""
    for name in ("passwd", "group"):
        with open(f"/etc/{name}", "rb") as file:
            own = [line for line in file if _id_in(line) == os.geteuid()]
        lines = _of_image(name).splitlines()
        if not any(_id_in(line) == os.geteuid() for line in lines):
            _write_in_etc(top, name, b"\n".join([*lines, *own]))


def _add_network_files(top: SafeFolder, *, has_network: bool) -> None:
    """Copy what the sandbox has: it cannot be mounted, because root may change it in its box.

    Without a network, only what the image has is changed that says nothing. Engines leave
    /etc/hosts empty in images.
    """
    with SafeFolder.at("/etc") as own:
        for name in map(os.path.basename, NETWORK_FILES):
            if has_network or not _of_image(name):
                with contextlib.suppress(FileNotFoundError), own.read_file(name) as file:
                    _write_in_etc(top, name, file.read())


def _of_image(name: str) -> bytes:
    """Return a file in /etc of the image; b"" if it has none that can be read."""
    with (
        contextlib.suppress(OSError),
        SafeFolder.at(IMAGE, "etc") as etc,
        etc.read_file(name) as file,
    ):
        return file.read(_MAX_IMAGE_BYTES)
    return b""


def _write_in_etc(top: SafeFolder, name: str, data: bytes) -> None:
    with top.folder("etc", create=True) as etc, contextlib.suppress(FileExistsError):
        etc.write_new_file(name, data)


def _id_in(line: bytes) -> int | None:
    """Return the ID in a line of /etc/passwd or /etc/group."""
    fields = line.split(b":")
    return int(fields[2]) if len(fields) > 2 and fields[2].isdigit() else None


def _copy_missing(source: str, target: str) -> None:
    """Copy what is in the folder `source` but not in `target`: the files that can be read."""
    for entry in os.scandir(source):
        copy = f"{target}/{entry.name}"
        with contextlib.suppress(PermissionError):
            if entry.is_dir(follow_symlinks=False):
                os.makedirs(copy, exist_ok=True)
                _copy_missing(entry.path, copy)
                shutil.copystat(entry.path, copy)
                _copy_owner(entry, copy)
            elif (entry.is_symlink() or entry.is_file()) and not os.path.lexists(copy):
                shutil.copy2(entry.path, copy, follow_symlinks=False)
                _copy_owner(entry, copy)


def _copy_owner(entry: os.DirEntry[str], copy: str) -> None:
    """Give `copy` the owner of `entry`, if this box has that user and can change owners."""
    status = entry.stat(follow_symlinks=False)
    with contextlib.suppress(OSError):
        os.chown(copy, status.st_uid, status.st_gid, follow_symlinks=False)
