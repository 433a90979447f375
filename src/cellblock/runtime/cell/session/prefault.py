"""Prefault the pages that every block writes to, while the session waits for its next block.

After a fork, a checkpoint shares each page with the session, and the first write to a page waits
until the kernel has copied it. That happens hundreds of times in each block unless the pages are
copied in advance.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import mmap
import os
from collections.abc import Callable, Iterator

_MADV_POPULATE_WRITE = 23  # since Linux 5.14
_PAGE_SIZE = mmap.PAGESIZE
_ENTRY_SIZE = 8  # bytes of a page's entry in /proc/PID/pagemap
# Bits of an entry: present, not swapped, anonymous, mapped by this process only.
_PRIVATE = 0b100 << 61 | 1 << 56
_PRIVATE_MASK = 0b111 << 61 | 1 << 56
_MAX_SCANNED = 1 << 15  # pages; to scan more would take longer than it saves
_MAX_PAGES = 2048  # 8 MB
_CYCLE = 64  # forks, after which the set of pages is determined again
_SCANS = (2, 3)  # forks of a cycle at which pages are scanned; those found twice are prefaulted
_BATCH = 16  # ranges, between two checks for work

_madvise = ctypes.PyDLL(None, use_errno=True).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Prefaulter:
    """The pages of this process that its blocks keep writing to."""

    def __init__(self) -> None:
        self._forks = 0
        self._last_written = set[int]()
        self._ranges: list[tuple[int, int]] = []  # address, bytes
        self._has_shared_pages = False

    def record_fork(self) -> None:
        """Call this before each fork: the pages private by now were written since the last one."""
        self._forks += 1
        self._has_shared_pages = True
        if self._forks % _CYCLE not in _SCANS:
            return
        with contextlib.suppress(OSError, ValueError):
            written = set(_private_pages())
            if len(both := written & self._last_written) <= _MAX_PAGES:
                self._ranges = list(_page_ranges(sorted(both)))
            self._last_written = written

    def prefault(self, is_idle: Callable[[], bool]) -> None:
        """After a fork: copy the pages, until all are copied or `is_idle` returns False."""
        if not self._has_shared_pages:
            return
        self._has_shared_pages = False
        for begin in range(0, len(self._ranges), _BATCH):
            if not is_idle():
                return
            for address, size in self._ranges[begin : begin + _BATCH]:
                _madvise(address, size, _MADV_POPULATE_WRITE)  # fails harmlessly if unmapped


def _private_pages() -> Iterator[int]:
    """Yield the numbers of writable pages that no other process shares, up to a limit.

    The smallest mappings come first. Of the one that exceeds the limit only the upper end is
    scanned: the kernel extends mappings downwards, so the memory from before a large table lies
    above it.
    """
    left = _MAX_SCANNED
    pagemap = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    try:
        for count, end in sorted(_writable_mappings()):
            count = min(count, left)
            left -= count
            data = os.pread(pagemap, count * _ENTRY_SIZE, (end - count) * _ENTRY_SIZE)
            entries = memoryview(data).cast("Q")
            yield from (
                page
                for page, entry in enumerate(entries, end - count)
                if entry & _PRIVATE_MASK == _PRIVATE
            )
    finally:
        os.close(pagemap)


def _writable_mappings() -> Iterator[tuple[int, int]]:
    """Yield the size in pages of each private mapping, and the number of the page after it."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            addresses, rights, _ = line.split(None, 2)
            if rights.startswith("rw") and rights.endswith("p"):
                begin, end = (int(address, 16) // _PAGE_SIZE for address in addresses.split("-"))
                yield end - begin, end


def _page_ranges(pages: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the address and size in bytes of each run of consecutive pages."""
    for _, group in itertools.groupby(enumerate(pages), lambda entry: entry[1] - entry[0]):
        found = [page for _, page in group]
        yield found[0] * _PAGE_SIZE, len(found) * _PAGE_SIZE
