"""Fences of code in Markdown: as CommonMark defines them, and as models write them. No I/O."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

_CODE_OR_THOUGHT = re.compile(
    # A fence, which may contain the tags as part of its code.
    r"(?P<fence>^[ \t>*+\-\d.)]*(?P<marks>`{3,}|~{3,})[^`\n]*\n"
    r".*?(?:^[ \t>]*(?P=marks)[`~]*[ \t]*$|\Z))"
    r"|^[ \t]*<think>.*?(?:</think>|\Z)"
    # Some models answer without the opening tag.
    r"|(?P<end>^[ \t]*</think>)",
    re.DOTALL | re.MULTILINE,
)
_HTML_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_OPENING = re.compile(r"```[ \t]*(?:(\w+)[ \t]*)?\n")
# AutoGen 0.2 wants the marks at the start of a line, AutoGen 0.7 anywhere.
_CLOSING = re.compile(r"\n[ \t>]*```|```[ \t]*(?=\n|\Z)")
_QUOTE_MARKS = re.compile(r"^[ \t]*(?:>[ \t]?)+", re.MULTILINE)
_TAGGED_OPENING = re.compile(r"```[ \t]*\w+[ \t]*$", re.MULTILINE)
_CLOSING_AFTER_TEXT = re.compile(r"\S[ \t]*```[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)
class Fence:
    """A fence: the text in it, and what stands after its first marks."""

    code: str
    info: str
    is_closed: bool = True

    @property
    def seems_misread(self) -> bool:
        """Whether a model seems to have meant other fences than CommonMark sees.

        Marks that CommonMark does not accept, such as after other text, make it take the end of a
        fence for the start of one.
        """
        if self.info.strip():
            return not self.is_closed and bool(_CLOSING_AFTER_TEXT.search(self.code))
        return (
            not self.is_closed or not self.code.strip() or bool(_TAGGED_OPENING.search(self.code))
        )


def without_thoughts(text: str) -> str:
    """Return `text` without the parts between `<think>` and `</think>`, except inside fences."""
    if "think>" not in text:
        return text
    kept, start = "", 0
    for match in _CODE_OR_THOUGHT.finditer(text):
        if match["fence"] is None:
            kept = "" if match["end"] else f"{kept}{text[start : match.start()]}\n\n"
            start = match.end()
    return kept + text[start:]


def commonmark_fences(text: str) -> list[Fence]:
    """Return the fences that CommonMark finds in `text`, whose line ends are LF."""
    # Most uses of the library never parse Markdown, and this import is slow.
    from markdown_it import MarkdownIt
    from markdown_it.common.utils import unescapeAll

    # A shared parser is not thread-safe; creating one takes 0.3 ms. Inline text is not needed.
    # Lists nested deeper than the limit (20 by default) would hide everything after them.
    parser = MarkdownIt("commonmark", {"maxNesting": 100}).disable(["inline", "text_join"])
    fences: list[Fence] = []
    for token in parser.parse(text if text.endswith("\n") else f"{text}\n"):
        if token.type == "fence" and token.map is not None:
            first, end = token.map
            is_closed = end - first == token.content.count("\n") + 2
            code = token.content.removesuffix("\n")
            fences.append(Fence(code, unescapeAll(token.info), is_closed))
    return fences


def autogen_fences(text: str) -> list[Fence]:
    """Return the fences that AutoGen's pattern finds, without quote marks and indentation."""
    text = _HTML_COMMENT.sub("", text)
    fences: list[Fence] = []
    position = 0
    while opening := _OPENING.search(text, position):
        start = opening.end()
        closing = _CLOSING.search(text, start - 1)
        if closing is None:
            break
        code = text[start : closing.start()]
        if _QUOTE_MARKS.match(text, text.rfind("\n", 0, opening.start()) + 1):
            code = _QUOTE_MARKS.sub("", code)
        fences.append(Fence(textwrap.dedent(code), opening[1] or ""))
        position = closing.end()
    return fences


def fenced(text: str, language: str) -> str:
    """Return `text` as a fenced block. The fence is longer than any backticks in it."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    marks = "`" * max(3, longest + 1)
    line_end = "" if not text or text.endswith("\n") else "\n"
    return f"{marks}{language}\n{text}{line_end}{marks}"
