"""CellHistory: the cells that a kernel has run."""

from __future__ import annotations

import fnmatch
from typing import Any

# The number of the session, the number of the cell, and its code or its code and output.
Entry = tuple[int, int, Any]
_SESSION = 0  # the present one
_MAX_CELLS = 10_000
_MAX_CHARACTERS = 1 << 20


class CellHistory:
    """The numbers and the code of the last cells, oldest first."""

    def __init__(self) -> None:
        self._cells: list[tuple[int, str]] = []

    def add(self, number: int, code: str) -> None:
        """Add a cell."""
        self._cells.append((number, code))
        del self._cells[:-_MAX_CELLS]

    def tail(self, count: int | None) -> list[tuple[int, str]]:
        """Return the last `count` cells; None means all."""
        return self._cells[-count:] if count else ([] if count == 0 else list(self._cells))

    def range(self, start: int | None, stop: int | None) -> list[tuple[int, str]]:
        """Return the cells with numbers from `start` up to, but without, `stop`."""
        first, end = start or 0, float("inf") if stop is None else stop
        return [cell for cell in self._cells if first <= cell[0] < end]

    def inputs(self, start: int, stop: int) -> list[tuple[int, str]]:
        """Return the code of each number from `start` up to, but without, `stop`.

        It is empty for cells that are not kept, and for old cells beyond `_MAX_CHARACTERS` in all.
        """
        first = max(start, stop - _MAX_CELLS)
        codes, unused = dict(self.range(first, stop)), _MAX_CHARACTERS
        found = list[tuple[int, str]]()
        for number in range(stop - 1, start - 1, -1):
            code = codes.get(number, "")
            unused -= len(code)
            found.append((number, code if unused >= 0 else ""))
        return found[::-1]

    def search(self, pattern: str, *, count: int | None, unique: bool) -> list[tuple[int, str]]:
        """Return the last `count` cells that match a glob; with `unique`, each code once."""
        found = [cell for cell in self._cells if fnmatch.fnmatchcase(cell[1], pattern)]
        if unique:
            newest = {code: number for number, code in found}
            found = sorted((number, code) for code, number in newest.items())
        return found[-count:] if count else found


def to_entries(cells: list[tuple[int, str]], *, with_output: bool) -> list[Entry]:
    """Return `cells` as Jupyter expects them. The output of a cell is not kept."""
    return [(_SESSION, number, (code, None) if with_output else code) for number, code in cells]
