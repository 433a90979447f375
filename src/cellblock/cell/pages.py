"""The pages of memory that a process touches after every fork, copied at once before anybody waits for them.

After a fork both sides share all memory, and each page that one of them writes to is copied first, at the price of a trap into the
kernel. An interpreter writes to the same few hundred pages whatever it runs. They are found in the kernel's own map of the
process (``pagemap``: see proc_pid_pagemap(5)) as those that are not shared any more when the next fork comes, and copied in one go by
`madvise(2)` with MADV_POPULATE_WRITE. On a kernel without that nothing happens but the traps.
"""

from __future__ import annotations

import contextlib
import itertools
from array import array

from . import kernel

_PAGE = 4096
_LARGEST = 8192  # pages of a mapping that is looked at: what is larger is somebody's data
_MOST = 1500  # pages that are copied in advance
_LEARN = 4  # forks in a row before which is looked
_AGAIN = 64  # ... and one of so many later
_PRESENT, _OWN = 1 << 63, 1 << 56
_PRESENT_AND_OWN = _PRESENT | _OWN


class HotPages:
    """What this process writes to between two forks, as far as it is the same every time."""

    def __init__(self) -> None:
        self._forks = 0
        self._before: set[int] = set()
        self._ranges: list[tuple[int, int]] = []

    def learn(self) -> None:
        """Before a fork: see what has been written to since the last one."""
        self._forks += 1
        if self._forks > _LEARN and self._forks % _AGAIN > 1:
            return
        with contextlib.suppress(OSError):
            found = _own_pages()
            hot = sorted(found & self._before)
            self._before = found
            self._ranges = _ranges(hot) if len(hot) <= _MOST else []

    def copy(self) -> None:
        """After it: have those copied."""
        for start, size in self._ranges:
            if not kernel.populate(start, size):
                self._ranges = []
                return


def _own_pages() -> set[int]:
    """Give the numbers of the pages in small private mappings that this process shares with nobody."""
    found: set[int] = set()
    with open("/proc/self/maps") as maps, open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        for line in maps:
            where, rights, _ = line.split(None, 2)
            if rights != "rw-p":
                continue
            start, end = (int(part, 16) // _PAGE for part in where.split("-"))
            if end - start <= _LARGEST:
                pagemap.seek(start * 8)
                entries = array("Q", pagemap.read((end - start) * 8))
                found.update(start + i for i, entry in enumerate(entries) if entry & _PRESENT_AND_OWN == _PRESENT_AND_OWN)
    return found


def _ranges(pages: list[int]) -> list[tuple[int, int]]:
    """Give ascending page numbers as (address, size) of runs."""
    runs: list[tuple[int, int]] = []
    for _, group in itertools.groupby(enumerate(pages), lambda pair: pair[1] - pair[0]):
        members = [page for _, page in group]
        runs.append((members[0] * _PAGE, len(members) * _PAGE))
    return runs
