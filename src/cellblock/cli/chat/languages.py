"""Which blocks of an answer the command runs or saves."""

from __future__ import annotations

from ...agents.runnable_blocks import language_family, runnable_blocks
from ...blocks import CodeBlock
from ...languages import LANGUAGES as _ALL

LANGUAGES = tuple(language.name for language in _ALL if language.policy == "execute")
_FAMILIES = frozenset(map(language_family, LANGUAGES))


def blocks_of(answer: str) -> list[CodeBlock]:
    """Return the blocks of `answer` that run, and those that are saved under a name of theirs."""
    return runnable_blocks(answer, LANGUAGES, with_named_data=True)


def is_run(block: CodeBlock) -> bool:
    """Return True if `block` runs, False if it is only saved."""
    return language_family(block.language) in _FAMILIES
