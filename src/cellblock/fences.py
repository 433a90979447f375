"""Fences of code in Markdown: as CommonMark defines them, and as models write them. No I/O."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from .languages import find_language
from .source_text import python_error

_CODE_OR_THOUGHT = re.compile(
    # A fence, which may contain the tags as part of its code.
    r"(?P<fence>^[ \t>*+\-\d.)]*(?P<marks>`{3,}|~{3,})[^`\n]*\n"
    r".*?(?:^[ \t>]*(?P=marks)(?![ \t]*[\w{])[^\n]*$|\Z))"
    r"|^[ \t]*<think>.*?(?:</think>|\Z)"
    # Some models answer without the opening tag.
    r"|(?P<end>^[ \t]*</think>)",
    re.DOTALL | re.MULTILINE,
)
_QUOTE_MARKS = re.compile(r"^[ \t]*(?:>[ \t]?)+", re.MULTILINE)
_TAGGED_OPENING = re.compile(r"```[ \t]*\w+[ \t]*$", re.MULTILINE)
_CLOSING_AFTER_TEXT = re.compile(r"\S[ \t]*```[ \t]*$", re.MULTILINE)
# An HTML comment, or the marks of a fence anywhere in a line, as AutoGen accepts them.
_OPENING = re.compile(
    r"(?P<comment><!--.*?(?:-->|\Z))|(?P<marks>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*)\n", re.DOTALL
)
# How a fence of some marks ends in the answers of models, besides a line of these marks alone.
_CLOSING = (
    # Something stands behind them: `<end_code>`, `<|im_end|>`, a sentence, the next fence.
    r"\n[ \t>]*(?P<start>{marks}(?:{mark}*(?=[ \t]*(?:\n|\Z)))?)(?P<rest>[^\n]*)"
    # They were cut off.
    r"|\n[ \t>]*{mark}{mark}[ \t]*(?=\n|\Z)"
    # They stand behind code.
    r"|(?P<after>{marks}[ \t]*(?=\n|\Z))"
)
_MAX_CLOSINGS = 40  # that are looked at for one fence
_MAX_ENDS_BEHIND_CODE = 5
_HERE_DOCUMENT = re.compile(r"<<-?[ \t]*(['\"\\]?)([A-Za-z_]\w*)\1?")
_LONG_STRING = re.compile("\"{3}|'{3}")
_MARKS_OF_LINE = re.compile(r"\n[ \t>]*```([^\n]*)")


@dataclass(frozen=True)
class Fence:
    """A fence: the text in it, what stands after its first marks, and these marks.

    ends_line   False if the marks that close it are on the last line of the code
    """

    code: str
    info: str
    is_closed: bool = True
    marks: str = "```"
    ends_line: bool = True

    @property
    def seems_misread(self) -> bool:
        """Whether a model seems to have meant other fences than CommonMark sees.

        Marks that CommonMark does not accept, such as after other text, make it take the end of a
        fence for the start of one. Marks in a string of Python end the fence.
        """
        if self._may_end_earlier(of_lines_only=True) or not self.code.strip():
            return True
        if self.info.strip():
            return not self.is_closed and bool(_CLOSING_AFTER_TEXT.search(self.code))
        return not self.is_closed or bool(_TAGGED_OPENING.search(self.code))

    @property
    def is_whole(self) -> bool:
        """Whether this can be the code that was meant: it compiles, or only one end is possible."""
        tag = language_tag(self.info)
        if _may_be_python(tag) and python_error(self.code) is None:
            return True
        return bool(tag) and not self._may_end_earlier(of_lines_only=False)

    def _may_end_earlier(self, *, of_lines_only: bool) -> bool:
        """Return True if the code ends within a string, or has marks that may end the fence."""
        tag = language_tag(self.info)
        closings = _closings(f"\n{self.code}", 1, self.marks, tag)
        return _is_open(self.code, tag) or any(
            not _is_open(code, tag)
            for closing, code in closings
            if closing["after"] is None or not of_lines_only
        )


def language_tag(info: str) -> str:
    """Return the language in the info string of a fence; "" if there is none.

    `python title="x"`, `python {.class}`, `python{.class}`, `python:file.py`, `python,option`,
    `{python option}`, `{.python .class}` and `{#id .python}` name Python. `title="x"` names none.
    """
    info = info.strip()
    in_braces = info.startswith("{")
    for word in re.split(r"[\s{},]+", info.lstrip("{ \t")):
        if in_braces and word.startswith("#"):
            continue
        tag = word.split(":")[0]
        return "" if "=" in tag else tag.removeprefix(".") if in_braces else tag
    return ""


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
            fences.append(Fence(code, unescapeAll(token.info), is_closed, token.markup))
    return fences


def model_fences(text: str) -> list[Fence]:
    """Return the fences that models mean, without quote marks and indentation.

    AutoGen's pattern finds their start, anywhere in a line. A fence ends where `_CLOSING` says, but
    not within a string of Python, a here document or a fence in Markdown, if there is another end.
    Of several ends of Python, the first after which it compiles is taken.
    """
    fences: list[Fence] = []
    position = 0
    while opening := _OPENING.search(text, position):
        position = opening.end()
        info = opening["info"]
        if info is None or (info.strip() and not has_tag(info)):
            continue
        marks, tag = opening["marks"], language_tag(info)
        is_quoted = _QUOTE_MARKS.match(text, text.rfind("\n", 0, opening.start()) + 1) is not None
        end = _end(text, position, marks, tag, is_quoted)
        code = _plain(text[position : end.start() if end else len(text)], is_quoted)
        if end is not None:
            position = end.end() if end["start"] is None else end.end("start")
            if _opens_another(text, end):
                position = end.start("start")
        elif text[: opening.start()].rpartition("\n")[2].strip(" \t>"):
            break
        ends_line = end is None or end["after"] is None
        fences.append(Fence(code, info, end is not None, marks, ends_line))
        if end is None:
            break
    return fences


def has_tag(info: str) -> bool:
    """Return True if `info` behind marks is a tag, and not a sentence or `<end_code>`."""
    if re.fullmatch(r"[\w+#-]+", info.strip()):
        return True
    return find_language(language_tag(info)) is not None and bool(re.search(r"[{=:,]", info))


def _plain(code: str, is_quoted: bool) -> str:
    if is_quoted:
        code = _QUOTE_MARKS.sub("", code)
    return textwrap.dedent(code) if code[:1].isspace() else code


def _closings(
    text: str, start: int, marks: str, tag: str, is_quoted: bool = False
) -> Iterator[tuple[re.Match[str], str]]:
    """Yield where a fence of `marks`, whose code begins at `start`, may end, and its code then."""
    pattern = re.compile(_CLOSING.format(marks=marks, mark=marks[0]))
    for closing in islice(pattern.finditer(text, start - 1), _MAX_CLOSINGS):
        if _name(tag) == "markdown" and has_tag(closing["rest"] or ""):
            continue  # the start of a fence in it
        yield closing, _plain(text[start : closing.start()], is_quoted)


def _end(text: str, start: int, marks: str, tag: str, is_quoted: bool) -> re.Match[str] | None:
    """Return the end of a fence: None if it has none."""
    first: re.Match[str] | None = None
    ends: list[tuple[re.Match[str], str]] = []
    for closing, code in _closings(text, start, marks, tag, is_quoted):
        first = first or closing
        if not _is_open(code, tag):
            ends.append((closing, code))
            if closing["after"] is None or len(ends) == _MAX_ENDS_BEHIND_CODE:
                break
    if ends and _may_be_python(tag):
        for closing, code in (ends[-1], *ends):  # marks behind code may be part of a comment
            if python_error(code) is None:
                return closing
    return ends[0][0] if ends else first


def _opens_another(text: str, closing: re.Match[str]) -> bool:
    """Return True if the line that ends a fence is the start of the next one as well."""
    info = closing["rest"] or ""
    if not has_tag(info):
        return False
    after = _MARKS_OF_LINE.search(text, closing.end())
    is_known = find_language(language_tag(info)) is not None
    return is_known or (after is not None and not after[1].strip())


def _name(tag: str) -> str:
    language = find_language(tag)
    return tag if language is None else language.name


def _may_be_python(tag: str) -> bool:
    return _name(tag) in ("", "python")


def _is_open(code: str, tag: str) -> bool:
    """Return True if code ends within a string, a here document or a fence of its own."""
    match _name(tag):
        case "" | "python":
            error = python_error(code) if _LONG_STRING.search(code) else None
            return (error or "").startswith("unterminated triple")
        case "sh" | "bash":
            return any(
                not re.search(rf"^\t*{match[2]}$", code[match.end() :], re.MULTILINE)
                for match in _HERE_DOCUMENT.finditer(code)
            )
        case "markdown":
            tags = [has_tag(match[1]) for match in _MARKS_OF_LINE.finditer(f"\n{code}")]
            return tags.count(True) > tags.count(False)
        case _:
            return False


def fenced(text: str, language: str) -> str:
    """Return `text` as a fenced block. The fence is longer than any backticks in it."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    marks = "`" * max(3, longest + 1)
    line_end = "" if not text or text.endswith("\n") else "\n"
    return f"{marks}{language}\n{text}{line_end}{marks}"
