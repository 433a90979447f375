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

IMAGE: Final = "/run/box/image"
# Where the folder for changes is mounted, and then on it the root. So only that can be seen.
ROOT: Final = "/run/box/root"
UPPER: Final = "upper"  # what is changed; a folder in the one for changes
WORK: Final = "work"  # another, which the kernel uses for an overlayfs
_MAX_USERS_BYTES = 1 << 20  # of a file of users or groups


def mount_root(shared: Iterable[str]) -> None:
    """Mount the root. The paths `shared` are in it what they are outside of it.

    Raise `OSError`.
    """
    upper, work = f"{ROOT}/{UPPER}", f"{ROOT}/{WORK}"
    for folder in (upper, work):
        os.makedirs(folder, exist_ok=True)
    is_new = not os.listdir(upper)  # otherwise it is a copy of another box's
    existing = [path for path in shared if os.path.exists(path)]
    with SafeFolder.at(upper) as opened:
        for path in existing:
            _make_mount_point(opened, path)
        if is_new:
            _add_user(opened)
    # Only attributes that users may set: we have no rights on this machine.
    options = f"lowerdir={IMAGE},upperdir={upper},workdir={work},userxattr"
    try:
        syscalls.mount("overlay", ROOT, "overlay", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
    except OSError:  # this kernel, or the file system of the folder, does not allow it
        shutil.rmtree(work)  # which says that there is no overlayfs
        _copy_missing(IMAGE, upper)
        syscalls.mount(upper, ROOT, None, syscalls.MS_BIND)
    for path in existing:
        syscalls.mount(path, f"{ROOT}{path}", None, syscalls.MS_BIND | syscalls.MS_REC)


def enter_root() -> None:
    """Let this process have `ROOT` as its root, before it drops the right to change that.

    Not by a mount namespace: to copy one and remove most of it takes a millisecond.
    """
    os.chroot(ROOT)
    os.chdir("/")


def _make_mount_point(upper: SafeFolder, path: str) -> None:
    """Create what `path` is mounted on. It hides what the image has there, also a link."""
    *above, name = path.strip("/").split("/")
    with contextlib.ExitStack() as stack:
        folder = upper
        for part in above:
            folder = stack.enter_context(folder.folder(part, create=True))
        if os.path.isdir(path):
            folder.folder(name, create=True).close()
        else:
            with contextlib.suppress(FileExistsError):
                os.close(folder.create_file(name))


def _add_user(upper: SafeFolder) -> None:
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
            with upper.folder("etc", create=True) as etc, contextlib.suppress(FileExistsError):
                etc.write_new_file(name, b"\n".join([*lines, *own]))


def _id_in(line: bytes) -> int | None:
    """Return the ID in a line of /etc/passwd or /etc/group."""
    fields = line.split(b":")
    return int(fields[2]) if len(fields) > 2 and fields[2].isdigit() else None


def _copy_missing(source: str, target: str) -> None:
    """Copy what is in the folder `source` but not in `target`, as far as it can be read."""
    for entry in os.scandir(source):
        copy = f"{target}/{entry.name}"
        with contextlib.suppress(PermissionError):
            if entry.is_dir(follow_symlinks=False):
                os.makedirs(copy, exist_ok=True)
                _copy_missing(entry.path, copy)
            elif not os.path.lexists(copy):
                shutil.copy2(entry.path, copy, follow_symlinks=False)
