"""Notice that the model runs in circles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from ...blocks import CodeBlock
from .transcripts.entries import Entry, RunEntry

_MAX_REPEATS = 3


class Repeats:
    """Counts code of the answers to one message that comes again."""

    def __init__(self) -> None:
        self._failures = Counter[str]()  # also of code that nobody can approve
        self._known = set[tuple[str, str]]()  # code and what it printed
        self._repeats = Counter[tuple[str, str]]()  # since the last that was new

    def add(
        self, blocks: Sequence[CodeBlock], result: Entry, *, has_failed: bool
    ) -> Literal["repeated", "nothing new"] | None:
        """Return why the model has to stop after `blocks` with `result`, if it has to.

        Code may fail three times, and print the same three times with nothing new in between.
        """
        code = "\n".join(block.code for block in blocks)
        if has_failed:
            self._failures[code] += 1
            return "repeated" if self._failures[code] == _MAX_REPEATS else None
        if not isinstance(result, RunEntry):
            return None
        run = (code, "\n".join(block.output for block in result.blocks))
        if run not in self._known:
            self._known.add(run)
            self._repeats.clear()
        self._repeats[run] += 1
        return "nothing new" if self._repeats[run] == _MAX_REPEATS else None
