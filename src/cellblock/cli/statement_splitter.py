"""Lines of a session's Python, as they come, and the blocks that they make."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..errors import CellblockError

# What may be longer than its first lines: it ends where a line begins at the margin that is no part of it.
_COMPOUND = re.compile(r"(?:if|for|while|try|with|def|class|async|match)\b|@")
_GOES_ON = re.compile(r"(?:elif|else|except|finally)\b|[ \t#]")


class Lines:
    """Take a script apart into blocks: one for each statement, with what is indented below it.

    A command, a line that begins with a colon, is a block of its own; what begins with `%%` ends at an empty line.
    """

    def __init__(self) -> None:
        self._held: list[str] = []

    def take(self, line: str) -> Iterator[str]:
        """Take the next line, without its end, and give the blocks that are complete now: none, one or two."""
        if self._held and self._ends_before(line):
            yield from self.rest()
        if not self._held and not _is_code(line):
            return
        self._held.append(line)
        if self._ends_after(line):
            yield from self.rest()

    def rest(self) -> Iterator[str]:
        """Give the block of the lines that are held, if there are any; at the end of the script as well."""
        held, self._held = self._held, []
        if text := "\n".join(held).rstrip():
            yield text

    def _ends_before(self, line: str) -> bool:
        if not line.strip() or _GOES_ON.match(line) or not _COMPOUND.match(self._held[0]):
            return False
        return missing_indent("\n".join(self._held) + "\n\n") is None

    def _ends_after(self, line: str) -> bool:
        first = self._held[0]
        if first.startswith("%%"):
            return not line.strip()
        return first.startswith(":") or (
            not _COMPOUND.match(first) and missing_indent("\n".join(self._held)) is None
        )


def _is_code(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def missing_indent(text: str) -> int | None:
    """Give by how much the next line of unfinished `text` is to be indented; None when nothing is missing.

    What is wrong whatever follows is finished. Raises `CellblockError` where IPython is not installed.
    """
    if text.startswith(":"):
        return None
    try:
        # The same rules as those of the shell inside: magics, `!command`, `await`. Nothing of the text is run.
        from IPython.core.inputtransformer2 import TransformerManager
    except ImportError as error:
        raise CellblockError(
            "A session's prompt needs IPython: pip install ipython prompt_toolkit."
        ) from error
    status, indent = TransformerManager().check_complete(text)
    return (indent or 0) if status == "incomplete" else None
