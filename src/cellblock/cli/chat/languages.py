"""Which blocks of an answer the command runs or saves, and which it leaves out."""

from __future__ import annotations

from collections.abc import Sequence

from ...agents.left_out_blocks import describe_left_out, is_program
from ...agents.runnable_blocks import is_named_data, language_family, runnable_blocks
from ...blocks import CodeBlock, extract_code_blocks
from ...languages import LANGUAGES as _ALL
from ...languages import find_language

LANGUAGES = tuple(language.name for language in _ALL if language.policy == "execute")
_FAMILIES = frozenset(map(language_family, LANGUAGES))
_PROSE = ("text", "output", "console", "markdown")
_MEANT_TO_RUN = ("sql", "html", "css")  # in addition to programs
_SAVED = "A block is saved as a file if its first line is a comment such as `# filename: NAME`."


def blocks_of(answer: str) -> list[CodeBlock]:
    """Return the blocks of `answer` that run, and those that are saved under a name of theirs."""
    return runnable_blocks(answer, LANGUAGES, with_named_data=True)


def is_run(block: CodeBlock) -> bool:
    """Return True if `block` runs, False if it is only saved."""
    return language_family(block.language) in _FAMILIES


def left_out_of(answer: str) -> list[str]:
    """Return the tags of the other blocks of `answer`, each once, except those of plain text."""
    blocks = extract_code_blocks(answer, infer_languages=False)
    left_out = [block for block in blocks if not (is_run(block) or is_named_data(block))]
    return list(dict.fromkeys(b.language for b in left_out if b.language and not _is_prose(b)))


def are_no_answer(left_out: Sequence[str]) -> bool:
    """Return True if a model that writes only blocks of these languages wanted to do something."""
    return any(is_program(tag) or language_family(tag) in _MEANT_TO_RUN for tag in left_out)


def describe(left_out: Sequence[str]) -> str:
    """Return what the model is told of the blocks that are left out."""
    text = describe_left_out(left_out, LANGUAGES)
    return f"{text} {_SAVED}" if any(map(find_language, left_out)) else text


def _is_prose(block: CodeBlock) -> bool:
    return language_family(block.language) in _PROSE
