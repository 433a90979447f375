"""Show only the head and the tail of what is longer than the screen. Pure: no I/O."""

from __future__ import annotations

from collections import deque

TAIL_LINES = 6
_MIN_HEAD_LINES = 10
_OTHER_LINES = 12  # of the screen, for the tail and what surrounds it


def head_lines(rows: int) -> int:
    """Return how many lines are shown before the rest is folded, on a screen of `rows`."""
    return max(_MIN_HEAD_LINES, rows - _OTHER_LINES)


class FoldedOutput:
    """Pass on the first rows of a text, and hold back the rest. See `head_lines`."""

    def __init__(self, rows: int, columns: int) -> None:
        self._room, self._columns = head_lines(rows), max(1, columns)
        self._open = 0  # characters of the last line shown, if it goes on
        self._held = deque[str](maxlen=TAIL_LINES + 1)  # the last lines
        self._count = 0

    @property
    def is_folded(self) -> bool:
        """Whether anything is held back."""
        return bool(self._held)

    def add(self, text: str) -> str:
        """Return what of `text` is shown now."""
        shown = ""
        for line in text.splitlines(keepends=True):
            size = len(line.rstrip("\n"))
            cost = max(1, self._rows(self._open + size)) - self._rows(self._open)
            if self.is_folded or cost > self._room:
                self._hold(line)
                continue
            shown += line
            self._room -= cost
            self._open = 0 if line.endswith("\n") else self._open + size
        return shown

    def _rows(self, size: int) -> int:
        return -(-size // self._columns)

    def _hold(self, line: str) -> None:
        if self._held and not self._held[-1].endswith("\n"):
            line = self._held.pop() + line
        else:
            self._count += 1
        longest = 2 * self._columns
        self._held.append(line if len(line) <= longest else f"\u2026{line[-longest:]}")

    def end(self) -> tuple[int, str]:
        """Return how many lines stay folded, and the text after them. Begin again."""
        tail = list(self._held)[-TAIL_LINES:]
        folded = self._count - len(tail)
        self._held.clear()
        self._count = 0
        return folded, "".join(tail)
