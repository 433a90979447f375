"""Split an answer at the code that ran, so that a notebook has it in code cells."""

from __future__ import annotations

from markdown_it import MarkdownIt

from ..languages import LANGUAGES
from .entries import RunEntry


def split_answer(text: str, run: RunEntry) -> list[str | int] | None:
    """Return the parts of `text`: texts, and the numbers of the blocks of `run` between them.

    Return None if that cannot be done: the user edited the code, or a block is in a list.
    """
    fences = [token for token in MarkdownIt("commonmark").parse(text) if token.type == "fence"]
    code = [token for token in fences if token.info.strip().lower() in LANGUAGES]
    if run.is_edited or len(code) != len(run.blocks) or any(token.level for token in code):
        return None
    if any(token.content != block.code for token, block in zip(code, run.blocks, strict=True)):
        return None
    lines = text.split("\n")
    parts: list[str | int] = []
    start = 0
    for number, token in enumerate(code):
        assert token.map is not None
        parts += ["\n".join(lines[start : token.map[0]]), number]
        start = token.map[1]
    return [*parts, "\n".join(lines[start:])]
