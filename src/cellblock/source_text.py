"""The source of a block as its program reads it right, and which program that is. No I/O."""

from __future__ import annotations

import ast
import contextlib
import re
import threading
import warnings
from collections.abc import Generator
from dataclasses import replace

from .languages import Language, find_language

_SHELLS = ("sh", "bash")
# PEP 263: in the second line only if the first one has no code.
_OTHER_ENCODING = re.compile(
    r"((?:[ \t\f]*(?:#[^\n]*)?\n)?[ \t\f]*#[^\n]*?coding[:=][ \t]*)"
    r"(?!(?i:utf[-_]?8)(?:[^-\w.]|$))[-\w.]+",
    re.ASCII,
)
_LINE_END = re.compile(r"\r\n?")
_NAMED_PROGRAM = re.compile(r"\ufeff?(?:[ \t]*#[ \t]*filename:[^\r\n]*\r?\n)?#!([^\r\n]*)")
_PROGRAM_FOLDER = re.compile(r"^(?:/usr(?:/local)?|/opt/homebrew)?/s?bin/(?=[^/]+$)")
_PIP = {
    "python": re.compile(r"^! ?pip install\b(?!.*-qqq)", re.MULTILINE),
    **dict.fromkeys(("sh", "bash", "pwsh"), re.compile(r"^pip install\b(?!.*-qqq)", re.MULTILINE)),
}


def source_to_run(code: str, tag: str) -> str:
    """Return the source of a block in the language `tag`, as executors run and save it.

    See `as_utf_8` and `silence_pip`.
    """
    return silence_pip(as_utf_8(code, tag), tag)


def as_utf_8(code: str, tag: str) -> str:
    """Return the source of a program in the language `tag`, to be written as UTF-8.

    In Python and shells, line ends become LF, and a byte order mark is left out. A coding cookie of
    Python becomes `utf-8`: the source is text already.
    """
    language = find_language(tag)
    if language is not None and language.name in ("python", *_SHELLS):
        code = _LINE_END.sub("\n", code.removeprefix("\ufeff"))
        if language.name == "python" and (cookie := _OTHER_ENCODING.match(code)):
            code = f"{cookie[1]}utf-8{code[cookie.end() :]}"
    return code


def with_named_program(language: Language, code: str) -> Language:
    """Return `language` with the program that the first line of `code` names, as `#!/bin/bash`.

    A line with the name of the file may stand before it. Only shells obey it. A program in a usual
    folder is looked up in PATH, so that `python3` is the Python of the blocks.
    """
    named = _NAMED_PROGRAM.match(code) if language.name in _SHELLS else None
    words = [] if named is None else named[1].split()
    if words and _name_of_program(words[0]) == "env":
        rest = words[2:] if words[1:2] == ["-S"] else words[1:]
        if rest and rest[0][0] != "-" and "=" not in rest[0]:
            words = rest
    if not words:
        return language
    program = _name_of_program(words[0])
    known = find_language(program)
    is_python = known is not None and known.name == "python"
    argv = (program,) if is_python or known is None or known.argv is None else known.argv
    return replace(language, argv=(*argv, *words[1:]))


def _name_of_program(path: str) -> str:
    return _PROGRAM_FOLDER.sub("", path)


def silence_pip(code: str, tag: str) -> str:
    """Return `code` with ` -qqq` after each `pip install` at the start of a line.

    In Python the command is `! pip install`.
    """
    if "pip install" not in code:
        return code
    known = find_language(tag)
    pattern = _PIP.get(known.name) if known else None
    return pattern.sub(r"\g<0> -qqq", code) if pattern else code


# The warning filters belong to the whole process: one thread at a time may replace them.
_warning_filters_lock = threading.Lock()


@contextlib.contextmanager
def ignored_warnings() -> Generator[None]:
    """Ignore warnings about a block that is parsed, such as for an invalid escape."""
    with _warning_filters_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def python_error(code: str, *, top_level_await: bool = True) -> str | None:
    """Return why `code` does not compile as Python; None if it does."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if top_level_await else 0
    with ignored_warnings():
        try:
            # dont_inherit: the __future__ import of this file must not apply to the block.
            compile(code, "<block>", "exec", flags, dont_inherit=True)
        except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError) as error:
            return error.msg if isinstance(error, SyntaxError) else type(error).__name__
    return None
