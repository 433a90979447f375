"""The root file system of a box's commands, if it is not that of the sandbox.

The mount broker hands in two folders of this machine: an image, which boxes share, and one for what
this box changes. The kernel joins them by overlayfs. The live Python stays in the sandbox's root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from typing import Final

from ..linux import syscalls
from ..linux.safe_folder import SafeFolder
from .filesystem import give_to_root

IMAGE: Final = "/run/box/image"
# Where the folder for changes is mounted, and then on it the root. So only that can be seen.
ROOT: Final = "/run/box/root"
# Folders in the one for changes: what is changed, and one that only overlayfs uses. Or all files.
UPPER: Final = "upper"
_WORK = "work"
COPY: Final = "copy"
_MAX_USERS_BYTES = 1 << 20  # of a file of users or groups


def mount_root(shared: Iterable[str], *, has_users: bool) -> None:
    """Mount the root. The paths `shared` are in it what they are outside of it.

    What is created here belongs to root if the box `has_users`. The folder for changes may hold
    those of the box that this one was forked from. Raise `OSError`.
    """
    existing = [path for path in shared if os.path.exists(path)]
    if os.path.isdir(f"{ROOT}/{COPY}"):
        _mount_copy(existing, has_users=has_users)
    else:
        _prepare(f"{ROOT}/{UPPER}", existing, has_users=has_users)
        try:
            _mount_overlay()
        except OSError:  # this kernel, or the file system of the folder, does not allow it
            _mount_copy(existing, has_users=has_users)
    for path in existing:
        syscalls.mount(path, f"{ROOT}{path}", None, syscalls.MS_BIND | syscalls.MS_REC)


def _mount_overlay() -> None:
    upper, work = f"{ROOT}/{UPPER}", f"{ROOT}/{_WORK}"
    os.makedirs(work, exist_ok=True)
    # Only attributes that users may set: we have no rights on this machine.
    options = f"lowerdir={IMAGE},upperdir={upper},workdir={work},userxattr"
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
    syscalls.mount("overlay", ROOT, "overlay", flags, options)


def _mount_copy(mount_points: Iterable[str], *, has_users: bool) -> None:
    copy = f"{ROOT}/{COPY}"
    is_new = not os.path.isdir(copy)
    _prepare(copy, mount_points, has_users=has_users)
    if is_new:
        _copy_missing(IMAGE, copy)
    syscalls.mount(copy, ROOT, None, syscalls.MS_BIND)


def _prepare(folder: str, mount_points: Iterable[str], *, has_users: bool) -> None:
    """Create in `folder` what is different from the image."""
    is_new = not os.path.isdir(folder)
    os.makedirs(folder, exist_ok=True)
    with SafeFolder.at(folder) as opened:
        for path in mount_points:
            _make_mount_point(opened, path)
        if is_new:
            _add_user(opened)
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
        theirs = b""
        with (
            contextlib.suppress(OSError),
            SafeFolder.at(IMAGE, "etc") as etc,
            etc.read_file(name) as file,
        ):
            theirs = file.read(_MAX_USERS_BYTES)
        lines = theirs.splitlines()
        if not any(_id_in(line) == os.geteuid() for line in lines):
            with top.folder("etc", create=True) as etc, contextlib.suppress(FileExistsError):
                etc.write_new_file(name, b"\n".join([*lines, *own]))


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
