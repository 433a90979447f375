"""The pages of memory that a process touches after every fork, copied at once before anybody waits for them.

After a fork both sides share all memory, and each page that one of them writes to is copied first, at the price of a trap
into the kernel. An interpreter writes to the same few hundred pages whatever it runs. They are found in the kernel's own
map of the process (``pagemap``: see proc_pid_pagemap(5)) as those that are not shared any more when the next fork comes, and
copied in one go by `madvise(2)` with MADV_POPULATE_WRITE. On a kernel without that nothing happens but the traps.
"""

from __future__ import annotations

import contextlib
import itertools
from array import array
from io import FileIO

from . import kernel

_PAGE = 4096
_LARGEST = 8192  # pages of a mapping that is looked at: what is larger is somebody's data
_MOST = 1500  # pages that are copied in advance
_AGAIN = 64  # forks after which it is found out anew
_PRESENT_AND_OWN = 1 << 63 | 1 << 56


class HotPages:
    """What this process writes to between two forks, as far as it is the same every time."""

    def __init__(self) -> None:
        self._forks = 0
        self._hot: set[int] = set()
        self._ranges: list[tuple[int, int]] = []

    def learn(self) -> None:
        """Before a fork: see what has been written to since the last one."""
        self._forks += 1
        with contextlib.suppress(OSError):
            match self._forks % _AGAIN:
                case 1:
                    self._ranges = []  # what is copied in advance would always seem to have been written to
                case 2:
                    self._hot = _own_pages()
                case 3:
                    self._hot &= _own_pages()
                case 4:
                    hot = sorted(self._hot & _own_pages())
                    self._ranges = _ranges(hot) if len(hot) <= _MOST else []
                    self._hot = set()
                case _:
                    pass

    def copy(self) -> None:
        """After it: have those copied."""
        for start, size in self._ranges:
            if not kernel.populate(start, size):
                self._ranges = []
                return


def _own_pages() -> set[int]:
    """Give the numbers of the pages in small private mappings that this process shares with nobody."""
    # All is read before anything is made of it: that writes to memory as well.
    with open("/proc/self/maps", "rb", buffering=0) as maps, open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        read = [(start, _entries(pagemap, start, end)) for start, end in _small_private(maps.readall())]
    found: set[int] = set()
    for start, entries in read:
        for page, entry in enumerate(array("Q", entries), start):
            if entry & _PRESENT_AND_OWN == _PRESENT_AND_OWN:
                found.add(page)
    return found


def _small_private(maps: bytes) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for line in maps.splitlines():
        where, rights, _ = line.split(None, 2)
        start, end = (int(part, 16) // _PAGE for part in where.split(b"-"))
        if rights == b"rw-p" and end - start <= _LARGEST:
            found.append((start, end))
    return found


def _entries(pagemap: FileIO, start: int, end: int) -> bytes:
    pagemap.seek(start * 8)
    return pagemap.read((end - start) * 8) or b""


def _ranges(pages: list[int]) -> list[tuple[int, int]]:
    """Give ascending page numbers as (address, size) of runs."""
    runs: list[tuple[int, int]] = []
    for _, group in itertools.groupby(enumerate(pages), lambda pair: pair[1] - pair[0]):
        members = [page for _, page in group]
        runs.append((members[0] * _PAGE, len(members) * _PAGE))
    return runs
