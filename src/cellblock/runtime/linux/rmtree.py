"""Remove a folder that code has written into, whatever names, depth and modes it left behind."""

from __future__ import annotations

import contextlib
import os

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def remove_tree(path: str) -> None:
    """Remove `path` and all below it, as far as that is possible; does nothing when it is not there."""
    for _ in range(3):  # something may still be writing into it
        with contextlib.suppress(OSError):
            top = _open(path)
            try:
                _empty(top)
            finally:
                os.close(top)
            os.rmdir(path)
        if not os.path.lexists(path):
            return


def _empty(top: int) -> None:
    """Remove what is in the folder `top`.

    What lies deeper is moved up into it first, so that neither descriptors nor the stack grow with the depth.
    """
    pending = _remove_files(top)
    count = 0
    while pending:
        name = pending.pop()
        with contextlib.suppress(OSError):
            folder = _open(name, top)
            try:
                for inner in _remove_files(folder):
                    os.close(_open(inner, folder))  # whose owner may not be allowed to move it yet
                    count += 1
                    moved = f".cellblock-{os.getpid()}-{count}"
                    os.rename(inner, moved, src_dir_fd=folder, dst_dir_fd=top)
                    pending.append(moved)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=top)


def _open(name: str, above: int | None = None) -> int:
    """Open the folder `name`, never through a link, with all rights for its owner."""
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | _FOLDER, dir_fd=above)
    try:
        with contextlib.suppress(PermissionError):  # of somebody else: its rights may do
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
        return os.open(f"/proc/self/fd/{handle}", _FOLDER)
    finally:
        os.close(handle)


def _remove_files(folder: int) -> list[str]:
    """Remove from `folder` what is no folder, and give the names of the folders; those of files may be millions."""
    folders = list[str]()
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(entry.name, dir_fd=folder)
    return folders
