"""Edit code in the user's editor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....blocks import CodeBlock
from ....fences import fenced
from ...terminal.editor import EditorError, edit_text
from ..languages import blocks_of

_SUFFIXES = {"python": ".py", "sh": ".sh", "bash": ".sh"}


async def edit(blocks: Sequence[CodeBlock], environment: Mapping[str, str]) -> list[CodeBlock]:
    """Return `blocks` as the user left them. Several blocks are one Markdown file.

    Raise `EditorError` if the editor fails or no code is left.
    """
    is_single = len(blocks) == 1
    suffix = _SUFFIXES.get(blocks[0].language, ".txt") if is_single else ".md"
    text = blocks[0].code if is_single else _to_markdown(blocks)
    text = await edit_text(text, suffix, environment)
    edited = [CodeBlock(text, blocks[0].language)] if is_single else blocks_of(text)
    if not any(block.code.strip() for block in edited):
        raise EditorError("there is no code left")
    return edited


def _to_markdown(blocks: Sequence[CodeBlock]) -> str:
    return "\n\n".join(fenced(block.code, block.language) for block in blocks) + "\n"
