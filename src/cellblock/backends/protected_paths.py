"""The startup files of a work folder, which blocks may read but not change."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from ..startup_files import GIT_READ_ONLY_NAMES, READ_ONLY_NAMES


class ProtectedPath(NamedTuple):
    """A path in a work folder, relative to it, to mount on itself.

    A mount point cannot be removed, renamed or replaced. `writable` is for a folder with protected
    paths in it, which could otherwise be moved away together with them.
    """

    path: str
    writable: bool = False


def find_protected_paths(work_dir: str) -> tuple[ProtectedPath, ...]:
    """Return the startup files and folders at the top of `work_dir`, and those in its `.git`.

    Symbolic links are left out: nothing can be mounted on them.
    """
    found = [ProtectedPath(name) for name in READ_ONLY_NAMES if _file_type(work_dir, name)]
    match _file_type(work_dir, ".git"):
        case "folder":
            inner = (f".git/{name}" for name in GIT_READ_ONLY_NAMES)
            found.append(ProtectedPath(".git", writable=True))
            found += [ProtectedPath(path) for path in inner if _file_type(work_dir, path)]
        case "file":  # it names the folder of the repository
            found.append(ProtectedPath(".git"))
        case _:
            pass
    return tuple(found)


def _file_type(folder: str, path: str) -> str:
    """Return "file", "folder", or "" for everything else."""
    try:
        mode = os.lstat(os.path.join(folder, path)).st_mode
    except OSError:
        return ""
    return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else ""
