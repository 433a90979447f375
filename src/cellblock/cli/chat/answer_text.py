"""Turn the pieces of a model's answer into styled lines. Pure: no I/O."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

from pygments.token import Comment, String
from rich.cells import cell_len
from rich.syntax import Syntax
from rich.text import Text

from ...fences import has_tag
from ...visible_text import visible
from .folding import TAIL_LINES

_FENCE = re.compile(r"[ \t>]*(`{3,}|~{3,})([^`\n]*)$")
_MAYBE_FENCE = re.compile(r"[ \t>]*(?:`{0,2}|~{0,2})$")
_LIST_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,3}[.)])[ \t]+")
# Lines whose end matters: headings, tables; and indented code, outside lists.
_WHOLE_LINE = re.compile(r"#{1,6} |\|")
_INDENTED = re.compile(r"    |\t")
_THINK = re.compile(r"</?think>")
_MIN_WIDTH = 20
_LINE_END = re.compile(r"\r\n|\r(?!\Z)|\n")  # a CR at the end may have an LF after it


def highlight(code: str, language: str) -> Text:
    """Return `code` in colours."""
    text = Syntax("", language or "text", theme="ansi_dark").highlight(code)
    text.rstrip()
    return text


def wrap(line: str, width: int) -> list[str]:
    """Return the lines of at most `width` columns for `line`, which breaks at its spaces only."""
    first, *words = line.split(" ")
    lines = [first]
    for word in words:
        if lines[-1].strip() and cell_len(f"{lines[-1]} {word}") > width:
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return lines


class CodeLines:
    """Highlight the lines of a block as they arrive, each once.

    A line that ends within a string or comment is shown to the highlighter again before the next
    one, which continues it; so is the first line of a long one. Others begin a new paragraph.
    """

    def __init__(self, language: str) -> None:
        self._syntax = Syntax("", language or "text", theme="ansi_dark")
        self._opening: str | None = None  # of the string or comment that is open

    def highlight(self, line: str) -> Text:
        """Return the next line in colours, with a line end."""
        code = line if self._opening is None else f"{self._opening}\n{line}"
        text = self._syntax.highlight(code).split("\n", allow_blank=True)
        is_first = self._opening is None
        if self._ends_open(code):
            self._opening = line if is_first else self._opening
        else:
            self._opening = None
        return text[0 if is_first else 1].append("\n")

    def _ends_open(self, code: str) -> bool:
        """Return True if a string or comment continues in the next line."""
        lexer = self._syntax.lexer
        if lexer is None:
            return False
        *_, (kind, _) = lexer.get_tokens(f"{code}\n")
        return kind in String or kind in Comment.Multiline


class AnswerText:
    """Wrap prose at `width` columns, and highlight fenced code line by line.

    A word is complete when the next one begins, and a line of code when the next line does. A line
    that does not fit continues with the next one, as in a browser.
    """

    def __init__(self, width: int, column: int = 0, *, code_lines: int | None = None) -> None:
        """Begin in a line of which `column` columns are printed.

        Of a block with more than `code_lines`, only the head and the tail are shown. What is a
        block here may differ from what runs: `has_folded` says whether anything is not shown.
        """
        self._code_lines = code_lines
        self._line_count = 0  # of the block
        self._tail = deque[Text](maxlen=TAIL_LINES)  # of the block, not shown yet
        self._width = max(width, _MIN_WIDTH)
        self._rest = ""  # of the line that is not printed yet
        self._is_line_start = True
        self._column, self._indent = column, 0
        self._is_wrapped = False  # whether the line did not fit
        self._has_open_line = False  # a line that did not fit, and that the next one may continue
        self._is_in_list = False  # whether the last line was in a list
        self._fence = ""  # the marks that opened the block; "" outside
        self._code = CodeLines("")
        self._is_thought = False
        self.has_folded = False  # whether a part of the answer is not shown

    def add(self, piece: str) -> Iterator[Text]:
        """Add a piece of the answer, and yield what can be printed."""
        *lines, last = _LINE_END.split(self._rest + piece)
        for line in lines:
            yield from self._end_line(visible(line))
            self._rest = ""
        self._rest = last
        if not (self._fence or self._must_wait(last)):
            words, space, rest = last.rpartition(" ")
            if words.strip():
                yield from self._prose(visible(words), visible(last))
                self._rest = space + rest  # no line ends with a space

    def end(self) -> Iterator[Text]:
        """Yield the rest, up to the end of its line."""
        if self._rest or not self._is_line_start:
            yield from self._end_line(visible(self._rest.removesuffix("\r")))
        yield from self._close_line()
        yield from self._end_block()
        self._rest = ""

    def _code_line(self, line: Text) -> Iterator[Text]:
        self._line_count += 1
        if self._code_lines is None or self._line_count <= self._code_lines:
            yield line
        else:
            self._tail.append(line)

    def _end_block(self) -> Iterator[Text]:
        """End the block, if there is one, with the tail that is not shown yet."""
        if self._code_lines is not None and self._tail:
            if folded := self._line_count - self._code_lines - len(self._tail):
                self.has_folded = True
                yield Text(f"--- {folded} lines are folded: :show shows all\n", "dim")
            yield from self._tail
            self._tail.clear()
        self._fence = ""

    def _must_wait(self, line: str) -> bool:
        """Return True if the line must be complete before any of it is printed."""
        if not self._is_line_start:
            return False
        return bool(
            self._is_whole(line)
            or _MAYBE_FENCE.match(line)
            or _FENCE.match(line)
            or _THINK.match(line)
        )

    def _is_whole(self, line: str) -> bool:
        """Return True if `line` is not prose."""
        if _INDENTED.match(line):
            return not (self._is_in_list or _LIST_ITEM.match(line))
        return bool(_WHOLE_LINE.match(line))

    def _end_line(self, line: str) -> Iterator[Text]:
        fence = _FENCE.match(line) if self._is_line_start else None
        if self._is_line_start and (fence or not line.strip() or self._is_whole(line)):
            yield from self._close_line()
        if self._fence:
            if fence and fence[1].startswith(self._fence) and not has_tag(fence[2]):
                yield from self._end_block()
                yield Text(f"{line}\n", "dim")
            else:
                yield from self._code_line(self._code.highlight(line))
        elif fence:
            self._line_count = 0
            self._fence, self._code = fence[1], CodeLines((fence[2].split() or [""])[0])
            yield Text(f"{line}\n", "dim")
        elif self._is_line_start and self._is_whole(line):
            is_heading = line.startswith("#")
            shown = "\n".join(wrap(line, self._width)) if is_heading else line
            self._column = 0
            yield Text(f"{shown}\n", "bold" if is_heading else self._style)
        else:
            yield from self._prose(line, line)
            self._has_open_line = self._is_wrapped
            if not self._has_open_line:
                yield Text("\n")
                self._column = 0
        self._is_line_start, self._is_wrapped = True, False

    def _close_line(self) -> Iterator[Text]:
        if self._has_open_line:
            self._has_open_line, self._column = False, 0
            yield Text("\n")

    def _prose(self, text: str, line: str) -> Iterator[Text]:
        """Yield words of a line of prose, with a line end before those that do not fit.

        `line` is the line as far as it is known.
        """
        if self._is_line_start and text:
            item = _LIST_ITEM.match(line)
            self._is_in_list = bool(item) or (self._is_in_list and line.startswith((" ", "\t")))
            if item:
                yield from self._close_line()
            if self._has_open_line:
                self._has_open_line, text = False, f" {text.lstrip()}"
            else:
                self._indent = len(item[0]) if item else len(text) - len(text.lstrip(" "))
        for word in re.findall(r"\s*\S+", text):
            yield from self._word(word)
            self._is_line_start = False

    def _word(self, word: str) -> Iterator[Text]:
        style = self._style
        if tag := _THINK.search(word):
            self._is_thought = not tag[0].startswith("</")
            style = style or self._style
            word = _THINK.sub("", word)
        if self._column and self._column + cell_len(word.rstrip()) > self._width:
            word = " " * self._indent + word.lstrip()
            self._column, self._is_wrapped = 0, True
            yield Text("\n")
        self._column += cell_len(word)
        yield Text(word, style)

    @property
    def _style(self) -> str:
        return "dim italic" if self._is_thought else ""
