"""Find and remove what a program left, so that the next one cannot see it.

A program of an executor on this machine can write into its work folder, its home folder and its
environment. All of these are folders of the executor: see `Place.writable_folders`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence

from ..runtime.linux.safe_folder import empty_folder

# Mode, inode, size and change time, which a program cannot set, of each file and folder.
FolderState = Mapping[str, tuple[int, int, int, int]]
_MAX_ENTRIES = 200  # of fresh folders; they have about 15


def state_of(folders: Sequence[str]) -> FolderState | None:
    """Return the state of everything in `folders`; None if that is too much, or unreadable."""
    state = dict[str, tuple[int, int, int, int]]()
    try:
        for path, status in _walk(folders):
            state[path] = status.st_mode, status.st_ino, status.st_size, status.st_ctime_ns
            if len(state) > _MAX_ENTRIES:
                return None
    except OSError:
        return None
    return state


def _walk(folders: Sequence[str]) -> Iterator[tuple[str, os.stat_result]]:
    for folder in folders:
        yield folder, os.lstat(folder)
    left = list(folders)
    while left:
        with os.scandir(left.pop()) as entries:
            for entry in entries:
                yield entry.path, entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)


async def was_emptied(folder: str, mode: int) -> bool:
    """Remove what is in `folder`. Return True if nothing is left, and its mode is still `mode`."""
    try:
        if os.lstat(folder).st_mode != mode:
            return False
        with os.scandir(folder) as entries:
            is_empty = next(entries, None) is None
    except OSError:
        return False
    return is_empty or await asyncio.to_thread(empty_folder, folder)
