"""Code blocks, and how they come out of a Markdown message. No I/O."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .languages import Action, Language, action_for, find_language


@dataclass
class CodeBlock:
    """Hold a piece of source text and the tag of its language."""

    code: str
    language: str


class Block(Protocol):
    """What is taken for a `CodeBlock`: those of AutoGen and AG2 are, among others."""

    @property
    def code(self) -> str:
        """The source text."""
        ...

    @property
    def language(self) -> str:
        """The tag of its language."""
        ...


def extract_code_blocks(markdown: str) -> list[CodeBlock]:
    """Give the fenced code of `markdown` in order. Never raises for any text.

    What a fence is, is CommonMark's say: backticks or tildes, in lists and quotes as well, to the end of the
    message when it is not closed. Indented code is not a block, nor is a fence inside HTML (a comment, say).

    `code` is what stands between the fence's two lines, without the last line end. Line ends come out as LF
    and NUL as U+FFFD, as CommonMark demands; the rest is exact. `language` is the tag as written, known or
    not. That of an untagged fence is inferred; it is "" where that fails. A byte order mark at the start is no text.
    """
    # Most uses of the library never see Markdown, and the parser takes longer to import than all the rest.
    from markdown_it import MarkdownIt
    from markdown_it.common.utils import unescapeAll

    # A new parser each time: a shared one is not safe in threads, and making it takes 0.3 ms. What paragraphs
    # hold does not matter here. Lists nested deeper than the limit (20 if not given) hide all that follows.
    parser = MarkdownIt("commonmark", {"maxNesting": 100}).disable(["inline", "text_join"])
    fences = (
        token for token in parser.parse(markdown.removeprefix("\ufeff")) if token.type == "fence"
    )
    return [_block(token.content.removesuffix("\n"), unescapeAll(token.info)) for token in fences]


def _block(code: str, info: str) -> CodeBlock:
    language = _tag(info)
    if not language and (language := infer_language(code)) == "unknown":
        language = ""
    return CodeBlock(code, language)


def _tag(info: str) -> str:
    """Give the language that a fence's info string begins with, "" for none.

    `python title="x"`, `python {.class}`, `python{.class}`, `python:file.py`, `python,option`,
    `{python option}`, `{.python .class}` and `{#id .python}` all say python; `title="x"` says nothing.
    """
    info = info.strip()
    in_braces = info.startswith("{")
    for word in re.split(r"[\s{},]+", info.lstrip("{ \t")):
        if in_braces and word.startswith("#"):
            continue
        tag = word.split(":")[0]
        return "" if "=" in tag else tag.removeprefix(".") if in_braces else tag
    return ""


class MarkdownCodeExtractor:
    """Extract code blocks from the content of a message: AutoGen 0.2's name and method."""

    def extract_code_blocks(
        self, message: str | Sequence[str | Mapping[str, Any]] | None
    ) -> list[CodeBlock]:
        """Give the blocks of `message`: a text, the parts of a multimodal message, or None.

        Each part is a document of its own. Parts without text, such as images, hold no blocks.
        """
        if message is None:
            return []
        parts = [message] if isinstance(message, str) else [_text(part) for part in message]
        return [block for part in parts for block in extract_code_blocks(part)]


def _text(part: str | Mapping[str, Any]) -> str:
    text = part if isinstance(part, str) else part.get("text")
    return text if isinstance(text, str) else ""


# Not after it: "pip = 3" is Python, as is "pipeline = make()", which AutoGen takes for a command.
_COMMAND = re.compile(r"(?:python3?|pip3?)[ \t]+(?![ \t=])")


def infer_language(code: str) -> str:
    """Give "sh" for a python or pip command, "python" for what compiles as Python, else "unknown"."""
    if _COMMAND.match(code):
        return "sh"
    return "python" if _compiles(code) else "unknown"


# The process has one list of warning filters: only one thread at a time may exchange it and put it back.
_filters = threading.Lock()


def _compiles(code: str) -> bool:
    with _filters, warnings.catch_warnings():
        # A doubtful escape in the block is not the caller's concern, and under -W error no reason to fail.
        warnings.simplefilter("ignore")
        try:
            # Without dont_inherit the __future__ import of this file would hold for the block.
            compile(code, "<block>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError):
            return False
    return True


_COMMENTS = (("#", ""), ("//", ""), ("/*", "*/"), ("<!--", "-->"))


def file_name(code: str) -> str | None:
    """Give the name in a `# filename: NAME` comment on the first line, None without one.

    `//`, `/* */` and `<!-- -->` comments count as well, and blanks do not matter. The name is as written: it
    may point anywhere, and whoever writes the file keeps it in the work folder.
    """
    first_line = code.partition("\n")[0].partition("\r")[0].strip()
    for opening, closing in _COMMENTS:
        if first_line.startswith(opening) and first_line.endswith(closing):
            comment = first_line.removeprefix(opening).removesuffix(closing).strip()
            # The keyword is a must: AutoGen 0.2 takes any first comment for a name.
            if comment.startswith("filename:"):
                return comment.removeprefix("filename:").strip() or None
    return None


def action_on(
    block: Block, language: Language, policies: Mapping[str, Action] | None = None
) -> Action:
    """Give what is to be done with `block`, which is in `language`; see `action_for`."""
    # Most are not looked into: they are run anyway.
    names_file = language.policy == "ignore" and file_name(block.code) is not None
    return action_for(language, policies, names_file=names_file)


_PIP = {
    "python": re.compile(r"^! ?pip install\b(?!.*-qqq)", re.MULTILINE),
    **dict.fromkeys(("sh", "bash", "pwsh"), re.compile(r"^pip install\b(?!.*-qqq)", re.MULTILINE)),
}


def silence_pip(code: str, language: str) -> str:
    """Give `code` with ` -qqq` after each `pip install` that begins a line (`! pip install` in Python)."""
    if "pip install" not in code:
        return code
    known = find_language(language)
    pattern = _PIP.get(known.name) if known else None
    return pattern.sub(r"\g<0> -qqq", code) if pattern else code
