"""Choose the blocks of a message that an agent runs."""

from __future__ import annotations

from collections.abc import Sequence

from ..blocks import CodeBlock, action_for_block, extract_code_blocks, file_name
from ..languages import find_language

# Models use these names for the same thing.
_FAMILIES = {"bash": "sh"}


def language_family(tag: str) -> str:
    """Return one name for all tags of a language: "python" for "py3", "sh" for "sh" and "bash"."""
    language = find_language(tag)
    name = tag.strip().lower() if language is None else language.name
    return _FAMILIES.get(name, name)


def is_named_data(block: CodeBlock) -> bool:
    """Return True if executors save `block` under the name on its first line, and do not run it."""
    language = find_language(block.language)
    return (
        language is not None
        and file_name(block.code) is not None
        and action_for_block(block, language) == "save"
    )


def runnable_blocks(
    markdown: str, languages: Sequence[str], *, with_named_data: bool = False
) -> list[CodeBlock]:
    """Return the blocks of `markdown` in one of `languages`. Their code ends with a line end.

    Fences without a tag count only if no other fence does: with code, they often hold its output.
    `with_named_data` adds those that executors save under the name on their first line.
    """
    families = {language_family(tag) for tag in languages}
    for infer in (False, True):
        blocks = [
            CodeBlock(f"{block.code}\n", block.language)
            for block in extract_code_blocks(markdown, infer_languages=infer)
            if language_family(block.language) in families
            or (with_named_data and is_named_data(block))
        ]
        if blocks:
            return blocks
    return []
