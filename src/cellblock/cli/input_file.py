"""What is to be run: the blocks of a message, or a whole file as one block."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ..blocks import CodeBlock, action_on, extract_code_blocks
from ..languages import find_language

_MESSAGES = ("", ".md", ".markdown", ".txt")


class NoSource(ValueError):
    """What was named cannot be read, or holds nothing that can be run."""


def read_blocks(file: str, language: str | None) -> list[CodeBlock]:
    """Give the blocks of `file`, which is `-` for standard input. Raises `NoSource`."""
    return blocks_of(_read(file), "" if file == "-" else Path(file).suffix, language)


def _read(file: str) -> str:
    try:
        # Standard input is None when it was closed.
        data = (
            (sys.stdin.buffer.read() if sys.stdin else b"")
            if file == "-"
            else Path(file).read_bytes()
        )
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise NoSource(
            f"{file} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
    return data.decode("utf-8-sig", errors="replace")


def blocks_of(text: str, suffix: str, language: str | None) -> list[CodeBlock]:
    """Give the blocks of `text`: one of `language`, or of the language of `suffix`, or those of a Markdown message."""
    if language is not None:
        return [CodeBlock(text, language)]
    if suffix.lower() in _MESSAGES:
        return extract_code_blocks(text)
    tag = suffix.removeprefix(".")
    # The table has the suffix of every language among its tags.
    if find_language(tag) is None:
        raise NoSource(f"{suffix} is the suffix of no known language: name one with --language")
    return [CodeBlock(text, tag)]


def runnable(blocks: Sequence[CodeBlock]) -> tuple[list[CodeBlock], str]:
    """Give the blocks that are to be run, and one line about the others: empty when there are none.

    Raises `NoSource` when nothing is left.
    """
    chosen = [block for block in blocks if _is_run(block)]
    others = Counter(block.language or "no language" for block in blocks if not _is_run(block))
    remark = ""
    if others:
        kinds = ", ".join(f"{count} x {name}" for name, count in others.items())
        remark = f"not run: {kinds}"
    if not chosen:
        raise NoSource(f"there is nothing to run ({remark or 'no code blocks'})")
    return chosen, remark


def _is_run(block: CodeBlock) -> bool:
    """Tell whether a block is handed over. One in an unknown language is: the result says that it is unknown."""
    language = find_language(block.language)
    return bool(block.language) and (language is None or action_on(block, language) != "ignore")
