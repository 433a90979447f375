"""Remove temporary folders, at the latest with the object that uses them."""

from __future__ import annotations

import os
import weakref
from collections.abc import Collection, Iterable
from pathlib import Path

from ...runtime.linux.safe_folder import remove_tree


class TempDirRemoval:
    """Remove `folder` when `user` is garbage or Python exits, but never in a forked child."""

    def __init__(self, user: object, folder: Path) -> None:
        self._creator = os.getpid()
        self._finalizer = weakref.finalize(user, _remove_in_process, str(folder), self._creator)

    @property
    def is_own(self) -> bool:
        """Whether this process created the folder, and so may remove it."""
        return self._creator == os.getpid()

    def remove(self) -> None:
        """Remove the folder now. Do nothing in a forked child."""
        self._finalizer()

    def cancel(self) -> None:
        """Keep the folder."""
        self._finalizer.detach()


def _remove_in_process(folder: str, pid: int) -> None:
    if os.getpid() == pid:
        remove_tree(folder)


def remove_all_except(paths: Iterable[str], keep: Collection[str]) -> None:
    """Remove the files and folders at `paths`, without those in `keep`."""
    for path in paths:
        if path not in keep:
            remove_tree(path)
