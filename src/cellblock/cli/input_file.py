"""Read the code to run: the blocks of a Markdown message, or a whole file as one block."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ..blocks import CodeBlock, action_for_block, extract_code_blocks, notebook_code
from ..languages import find_language
from ..text_files import UnreadableText, decode_python, decode_text

_MARKDOWN_SUFFIXES = ("", ".md", ".markdown", ".txt")


class InputError(ValueError):
    """The input cannot be read, or contains nothing that can be run."""


def read_blocks(file: str, language: str | None) -> list[CodeBlock]:
    """Return the blocks of `file`, or the cells of a notebook; `-` means standard input.

    Raise `InputError`.
    """
    suffix = "" if file == "-" else Path(file).suffix
    if suffix == ".ipynb" and language is None:
        return _notebook_blocks(file)
    known = find_language(language or suffix.removeprefix("."))
    decode = decode_python if known is not None and known.name == "python" else decode_text
    try:
        text = decode(_read(file), "standard input" if file == "-" else file)
    except UnreadableText as error:
        raise InputError(str(error)) from error
    return parse_blocks(text, suffix, language)


def _notebook_blocks(file: str) -> list[CodeBlock]:
    try:
        language, cells = notebook_code(_read(file))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is no notebook: {error}") from error
    if language.lower() != "python":
        raise InputError(f"{file} is a notebook in {language}: only those in Python can be run")
    return [CodeBlock(code, "python") for _, code in cells]


def _read(file: str) -> bytes:
    try:
        # sys.stdin is None if standard input is closed.
        if file == "-":
            return sys.stdin.buffer.read() if sys.stdin else b""
        return Path(file).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise InputError(
            f"{file} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error


def parse_blocks(text: str, suffix: str, language: str | None) -> list[CodeBlock]:
    """Return the blocks of `text`.

    With `language`, or the suffix of a language, the text is one block. Otherwise it is a Markdown
    message. Raise `InputError` for an unknown suffix.
    """
    if language is not None:
        return [CodeBlock(text, language)]
    if suffix.lower() in _MARKDOWN_SUFFIXES:
        return extract_code_blocks(text)
    tag = suffix.removeprefix(".")
    # The suffix of every language is also one of its tags.
    if find_language(tag) is None:
        raise InputError(f"{suffix} is not the suffix of a known language: use --language")
    return [CodeBlock(text, tag)]


def select_runnable(blocks: Sequence[CodeBlock]) -> tuple[list[CodeBlock], str]:
    """Return the blocks to run, and one line about the skipped ones; "" if there are none.

    Raise `InputError` if no block is left.
    """
    selected = [block for block in blocks if _is_runnable(block)]
    skipped = Counter(
        block.language or "no language" for block in blocks if not _is_runnable(block)
    )
    counts = ", ".join(f"{count} x {name}" for name, count in skipped.items())
    note = f"not run: {counts}" if counts else ""
    if not selected:
        raise InputError(f"there is nothing to run ({note or 'no code blocks'})")
    return selected, note


def _is_runnable(block: CodeBlock) -> bool:
    """Return True if the executor receives `block`. It reports an unknown language itself."""
    language = find_language(block.language)
    return bool(block.language) and (
        language is None or action_for_block(block, language) != "ignore"
    )
