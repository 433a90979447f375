"""Remove a temporary folder together with the object that owns it."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Any

from ...runtime.linux.rmtree import remove_tree


def remove_with_owner(owner: object, folder: Path) -> weakref.finalize[[str, int], Any]:
    """Remove `folder` when `owner` is garbage or Python exits, unless that is in a forked child.

    Calling the returned finalizer removes the folder now.
    """
    return weakref.finalize(owner, _remove_in_process, str(folder), os.getpid())


def _remove_in_process(folder: str, pid: int) -> None:
    if os.getpid() == pid:
        remove_tree(folder)
