"""Warm pages: those that every block writes to, copied for the session before its next block, while nobody waits.

After a fork each page is shared with the copy of the session, and the first write to it waits for the kernel to copy it:
hundreds of times in each block. While the session waits for its next block it can have that done in advance.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import mmap
import os
from collections.abc import Callable, Iterator

_MADV_POPULATE_WRITE = 23  # since Linux 5.14
_PAGE = mmap.PAGESIZE
_WORD = 8
_OWN = (
    0b100 << 61 | 1 << 56
)  # /proc/PID/pagemap: present, neither swapped nor a file's, mapped here alone
_KIND = 0b111 << 61 | 1 << 56
_LOOKED_THROUGH = 1 << 15  # pages at most; more would take longer than is gained
_MOST = 2048  # pages, 8 MB
_AGAIN = 64  # copies, after which it is looked anew what blocks write to
_LOOKS = (
    2,
    3,
)  # copies of those at which it is looked: what is written to at both is likely to be so again
_AT_ONCE = 16  # stretches, between two looks whether there is something to do

_madvise = ctypes.PyDLL(None, use_errno=True).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class WarmPages:
    """The pages of this process that its blocks keep writing to."""

    def __init__(self) -> None:
        self._copies = 0
        self._last = set[int]()
        self._stretches: list[tuple[int, int]] = []  # address, bytes
        self._are_shared = False  # with a copy

    def note(self) -> None:
        """A copy of this process is about to be made: what is its own by now has been written to since the last one."""
        self._copies += 1
        self._are_shared = True
        if self._copies % _AGAIN not in _LOOKS:
            return
        with contextlib.suppress(OSError, ValueError):
            written = set(_own_pages())
            if len(both := written & self._last) <= _MOST:
                self._stretches = list(_stretches(sorted(both)))
            self._last = written

    def copy(self, is_wanted: Callable[[], bool]) -> None:
        """After a copy was made: have them copied, for as long as that `is_wanted`."""
        if not self._are_shared:
            return
        self._are_shared = False
        for begin in range(0, len(self._stretches), _AT_ONCE):
            if not is_wanted():
                return
            for address, size in self._stretches[begin : begin + _AT_ONCE]:
                _madvise(
                    address, size, _MADV_POPULATE_WRITE
                )  # what is not there any more is no matter


def _own_pages() -> Iterator[int]:
    """Give the numbers of the pages that this process alone has, in what it can write to, as far as that is soon seen.

    Large tables are seen last, of the largest only the upper end: what was there before them lies above.
    """
    left = _LOOKED_THROUGH
    pagemap = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    try:
        for count, end in sorted(_writable()):
            count = min(count, left)
            left -= count
            entries = memoryview(os.pread(pagemap, count * _WORD, (end - count) * _WORD)).cast("Q")
            yield from (
                page for page, entry in enumerate(entries, end - count) if entry & _KIND == _OWN
            )
    finally:
        os.close(pagemap)


def _writable() -> Iterator[tuple[int, int]]:
    """Give how many pages each private part of memory has that can be written to, and the number after its last."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            addresses, rights, _ = line.split(None, 2)
            if rights.startswith("rw") and rights.endswith("p"):
                begin, end = (int(address, 16) // _PAGE for address in addresses.split("-"))
                yield end - begin, end


def _stretches(pages: list[int]) -> Iterator[tuple[int, int]]:
    """Give pages that follow each other as address and size."""
    for _, group in itertools.groupby(enumerate(pages), lambda entry: entry[1] - entry[0]):
        found = [page for _, page in group]
        yield found[0] * _PAGE, len(found) * _PAGE
