"""The startup files of a work folder, which blocks may read but not change."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from ..startup_files import READ_ONLY_INNER_NAMES, READ_ONLY_NAMES, READ_ONLY_SUFFIX


class ProtectedPath(NamedTuple):
    """A path in a work folder, relative to it, to bind-mount in place.

    A mount point cannot be removed, renamed or replaced. `writable` is for a folder with protected
    paths in it, which could otherwise be moved away together with them.
    """

    path: str
    writable: bool = False


def find_protected_paths(work_dir: str) -> tuple[ProtectedPath, ...]:
    """Return the startup files and folders at the top of `work_dir`, and those in `.git` and `.hg`.

    Symbolic links are left out: nothing can be mounted on them.
    """
    workspaces = (name for name in _list_names(work_dir) if name.endswith(READ_ONLY_SUFFIX))
    names = sorted((*READ_ONLY_NAMES, *workspaces))
    found = [ProtectedPath(name) for name in names if _file_type(work_dir, name)]
    for above, inner_names in READ_ONLY_INNER_NAMES.items():
        match _file_type(work_dir, above):
            case "folder":
                inner = (f"{above}/{name}" for name in inner_names)
                found.append(ProtectedPath(above, writable=True))
                found += [ProtectedPath(path) for path in inner if _file_type(work_dir, path)]
            case "file":  # it names the folder of the repository
                found.append(ProtectedPath(above))
            case _:
                pass
    return tuple(found)


def _list_names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _file_type(folder: str, path: str) -> str:
    """Return "file", "folder", or "" for everything else."""
    try:
        mode = os.lstat(os.path.join(folder, path)).st_mode
    except OSError:
        return ""
    return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else ""
