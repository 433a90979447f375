"""Scratch folders: what an executor needs on this machine besides the work folder of its blocks."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

_OTHER_PARENTS = ("/tmp", "/var/tmp", "/dev/shm")


def create_scratch(prefix: str, work_dir: str | os.PathLike[str]) -> Path:
    """Create a temporary folder that blocks do not see in `work_dir`, even if that is /tmp.

    They see it if `work_dir` contains all folders for temporary files, as "/" does.
    """
    return Path(tempfile.mkdtemp(prefix=prefix, dir=_parent_outside(work_dir)))


def _parent_outside(work_dir: str | os.PathLike[str]) -> str:
    usual, inside = tempfile.gettempdir(), Path(work_dir).resolve()
    for parent in (usual, *_OTHER_PARENTS):
        if not Path(parent).resolve().is_relative_to(inside) and _can_create_in(parent):
            return parent
    return usual


def _can_create_in(folder: str) -> bool:
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)
