"""CleanFolders: the folders of an executor, as they were before any code ran in it.

It decides for all who use an executor again whether the next program could see anything of the
earlier ones.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import stat
import sys
from collections.abc import Iterator, Sequence

from ...limits import MIB
from ...runtime.linux.safe_folder import SafeFolder, empty_folder
from .base import Place

if sys.platform == "linux":
    import fcntl

_LITTLE = 16  # entries and MiB that are removed without a thread
_MAX_ENTRIES = 200  # of the folders that are compared; fresh ones have about 15
# See ioctl_iflags(2), and linux/fs.h: flags; sizes of extents and project; generation.
_GET_FLAGS, _GET_FSXATTR, _GET_GENERATION = 0x80086601, 0x801C581F, 0x80087601
_FSXATTR_BYTES = 28


class CleanFolders:
    """The folders that code of the executor at `place`, which has just started, can write to.

    The work folder and the home folder are emptied. What lies in the others must not have changed.
    """

    def __init__(self, place: Place) -> None:
        """Raise `OSError` if the folders cannot be examined."""
        work_dir = str(place.workspace.path)
        self._emptied = [work_dir]
        if home := place.home_folder:
            self._emptied.append(str(home))
        self._kept = [path for path in map(str, place.writable_folders()) if path != work_dir]
        self._before = list(self._states())

    async def clean(self) -> bool:
        """Remove what code has left. Return False if something is left that cannot be removed.

        No code may run meanwhile.
        """
        if _costs_little(self._emptied):
            return self._clean()
        return await asyncio.to_thread(self._clean)

    def _clean(self) -> bool:
        if not all(map(empty_folder, self._emptied)):
            return False
        try:
            for folder in self._emptied:
                os.utime(folder)
            states = itertools.zip_longest(self._states(), self._before)
            return all(now == before for now, before in states)
        except OSError:
            return False

    def _states(self) -> Iterator[object]:
        for folder in self._emptied:
            yield _state_of_emptied(folder)
        kept = itertools.chain(*(_states(folder, self._emptied) for folder in self._kept))
        for number, state in enumerate(kept):
            if number >= _MAX_ENTRIES:
                raise OSError("too many files to compare")
            yield state


def _state_of_emptied(folder: str) -> object:
    """Return what code can change of a folder itself, but for its times."""
    with SafeFolder.at(folder) as opened:
        descriptor = opened.descriptor
        status = os.fstat(descriptor)
        attributes: list[object] = [
            _ioctl(descriptor, _GET_FLAGS, 8),
            _ioctl(descriptor, _GET_FSXATTR, _FSXATTR_BYTES),
            _ioctl(descriptor, _GET_GENERATION, 8),
        ]
        if sys.platform == "linux":
            names = sorted(os.listxattr(descriptor))
            attributes += [(name, os.getxattr(descriptor, name)) for name in names]
    # Some file systems never give back what the entries of a folder took.
    facts = status.st_ino, status.st_mode, status.st_uid, status.st_gid, status.st_size
    return (*facts, *attributes)


def _ioctl(descriptor: int, request: int, size: int) -> bytes:
    if sys.platform != "linux":
        return b""
    try:
        return fcntl.ioctl(descriptor, request, bytes(size))
    except OSError:  # this file system has nothing of this kind
        return b""


def _states(path: str, but: Sequence[str]) -> Iterator[object]:
    """Yield the states of a file or folder and all below. Code cannot set the change times."""
    status = os.lstat(path)
    yield path, status.st_ino, status.st_mode, status.st_size, status.st_ctime_ns
    if stat.S_ISDIR(status.st_mode):
        for name in sorted(os.listdir(path)):
            if (below := os.path.join(path, name)) not in but:
                yield from _states(below, but)


def _costs_little(folders: Sequence[str]) -> bool:
    """Return True if removing the contents of the folders takes less time than using a thread."""
    pending, cost = [*folders], 0
    try:
        while pending and cost < _LITTLE:
            with os.scandir(pending.pop()) as entries:
                for entry in itertools.islice(entries, _LITTLE):
                    cost += 1 + entry.stat(follow_symlinks=False).st_size // MIB
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
    except OSError:  # code can take away permissions
        return False
    return cost < _LITTLE
