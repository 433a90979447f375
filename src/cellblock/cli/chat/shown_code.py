"""Know which code the person has seen whole. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterable

from ...blocks import CodeBlock
from ...visible_text import visible

_TAB_SIZE = 4  # of highlighted code


class ShownCode:
    """What was printed of the last answer, and the blocks that were printed after it.

    is_folded   whether a part of the answer was not printed
    """

    def __init__(self) -> None:
        self._answer: list[str] = []
        self._blocks = set[str]()
        self.is_folded = False

    def add_answer(self, text: str) -> None:
        """Add a text that was printed of the answer."""
        self._answer.append(text)

    def add_blocks(self, blocks: Iterable[CodeBlock]) -> None:
        """Add blocks that were printed whole."""
        self._blocks.update(block.code for block in blocks)

    def has(self, block: CodeBlock) -> bool:
        """Return True if `block` was printed whole: itself, or in an answer of which all was.

        Then its lines stand one after the other, all with the same indentation or quote marks. They
        do not count if anything was folded: other text may look like the code that was.
        """
        if block.code in self._blocks or self.is_folded:
            return block.code in self._blocks
        printed = [_printed(line) for line in "".join(self._answer).split("\n")]
        code = [_printed(visible(line)) for line in block.code.rstrip("\n").split("\n")]
        whole = "\n".join(["", *printed, ""])
        prefixes = {line.removesuffix(code[0]) for line in printed if line.endswith(code[0])}
        return any(
            "\n".join(["", *(f"{prefix}{line}".rstrip() for line in code), ""]) in whole
            for prefix in prefixes
            if not prefix.strip(" >")
        )


def _printed(line: str) -> str:
    return line.expandtabs(_TAB_SIZE).rstrip()
