"""Split a Python script into statements, line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...errors import CellblockError

# A compound statement can continue after a complete line. The next unindented statement ends it.
_COMPOUND = re.compile(r"(?:if|for|while|try|with|def|class|async|match)\b|@")
_CONTINUATION = re.compile(r"(?:elif|else|except|finally)\b|[ \t#]")


class StatementSplitter:
    """Split a script into blocks of one statement each.

    A command, which is a line that starts with a colon, is a separate block. A cell magic, which
    starts with `%%`, ends at an empty line.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add_line(self, line: str) -> Iterator[str]:
        """Add the next line, without its line end, and yield up to two blocks that are complete."""
        if self._lines and self._ends_before(line):
            yield from self.flush()
        if not self._lines and not _is_code(line):
            return
        self._lines.append(line)
        if self._ends_after(line):
            yield from self.flush()

    def flush(self) -> Iterator[str]:
        """Yield the block of the lines added so far, if any."""
        lines, self._lines = self._lines, []
        if text := "\n".join(lines).rstrip():
            yield text

    def _ends_before(self, line: str) -> bool:
        if not line.strip() or _CONTINUATION.match(line) or not _COMPOUND.match(self._lines[0]):
            return False
        return missing_indent("\n".join(self._lines) + "\n\n") is None

    def _ends_after(self, line: str) -> bool:
        first = self._lines[0]
        if first.startswith("%%"):
            return not line.strip()
        return first.startswith(":") or (
            not _COMPOUND.match(first) and missing_indent("\n".join(self._lines)) is None
        )


def _is_code(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def missing_indent(text: str) -> int | None:
    """Return the indentation of the next line of unfinished `text`; None if `text` is complete.

    Text with a syntax error is complete. Raise `CellblockError` if IPython is not installed.
    """
    if text.startswith(":"):
        return None
    try:
        # The session uses IPython, so its syntax applies: magics, `!command`, `await`.
        from IPython.core.inputtransformer2 import TransformerManager
    except ImportError as error:
        raise CellblockError(
            "The REPL needs IPython. Install it: pip install ipython prompt_toolkit."
        ) from error
    status, indent = TransformerManager().check_complete(text)
    return (indent or 0) if status == "incomplete" else None
