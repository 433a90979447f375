"""Remove a folder in which untrusted code has created any names, depths and modes."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys

from . import open_flags


def remove_tree(path: str) -> None:
    """Remove `path` and everything below it, as far as possible. Ignore a missing path."""
    if sys.platform != "linux":  # the steps below need its kernel
        shutil.rmtree(path, ignore_errors=True)
        return
    for _ in range(3):  # a process may still be writing to it
        with contextlib.suppress(OSError):
            top = _open(path)
            try:
                _empty(top)
            finally:
                os.close(top)
            os.rmdir(path)
        if not os.path.lexists(path):
            return


def empty_folder(path: str) -> bool:
    """Remove everything below `path`, which keeps its permissions. Return True if that worked."""
    with contextlib.suppress(OSError):
        mode = os.stat(path).st_mode
        top = _open(path)
        try:
            _empty(top)
            os.fchmod(top, mode & 0o7777)
            return not os.listdir(top)
        finally:
            os.close(top)
    return False


def _empty(top: int) -> None:
    """Empty the open folder `top`.

    Subfolders of its folders are moved up into it, so that the number of open files and the stack
    do not grow with the depth.
    """
    pending = _remove_files(top)
    count = 0
    while pending:
        name = pending.pop()
        with contextlib.suppress(OSError):
            folder = _open(name, top)
            try:
                for inner in _remove_files(folder):
                    os.close(
                        _open(inner, folder)
                    )  # to move a folder, its owner needs write permission
                    count += 1
                    moved = f".cellblock-{os.getpid()}-{count}"
                    os.rename(inner, moved, src_dir_fd=folder, dst_dir_fd=top)
                    pending.append(moved)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=top)


def _open(name: str, above: int | None = None) -> int:
    """Open the folder `name`, never through a symbolic link, and give its owner all permissions."""
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | open_flags.FOLLOWED_FOLDER, dir_fd=above)
    try:
        with contextlib.suppress(
            PermissionError
        ):  # another user owns it; its permissions may be enough
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
        return os.open(f"/proc/self/fd/{handle}", open_flags.FOLLOWED_FOLDER)
    finally:
        os.close(handle)


def _remove_files(folder: int) -> list[str]:
    """Remove everything but folders from the open `folder`. Return the names of the folders.

    File names are not collected: there may be millions.
    """
    folders = list[str]()
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(entry.name, dir_fd=folder)
    return folders
