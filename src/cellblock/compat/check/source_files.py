"""Find scripts, notebooks and Markdown pages, and read their code."""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ...blocks import notebook_code
from ...languages import find_language

_MARKDOWN_SUFFIXES = (".md", ".mdx", ".markdown")
_SUFFIXES = (".py", ".ipynb", *_MARKDOWN_SUFFIXES)
# Pages of documentation have fences at any depth, such as in the tabs of MDX.
_FENCE = re.compile(
    r"^[ \t>]*(?P<marks>`{3,}|~{3,})[ \t{.]*(?P<tag>\w+)[^\n]*\n"
    r"(?P<code>.*?)^[ \t>]*(?P=marks)[`~]*[ \t]*$",
    re.DOTALL | re.MULTILINE,
)
_PYTHON_MAGICS = {"capture", "lprun", "memit", "mprun", "prun", "time", "timeit"}
_AUTOGEN = re.compile(r"(?<![\w-])autogen(_core|_ext|_agentchat)?(?![\w-])")
_SKIPPED_FOLDERS = {"__pycache__", "node_modules", "site-packages"}


class UnreadableFile(Exception):
    """A file is not a script, notebook or page. The message says why."""


@dataclass(frozen=True)
class SourceCell:
    """A piece of source code. `number` is that of a notebook's cell, from 1; None in a script.

    `problem` says why it cannot be read, if it is not Python.
    """

    source: str | bytes
    number: int | None = None
    problem: str = ""

    def place(self, line: int) -> str:
        """Return the name of a line for a reader."""
        return f"line {line}" if self.number is None else f"cell {self.number}, line {line}"


def find_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the files among `paths`, and the scripts, notebooks and pages in their folders.

    Hidden folders, virtual environments and installed packages are left out.
    """
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for folder, folders, files in os.walk(path):
            folders[:] = sorted(name for name in folders if _is_searched(Path(folder, name)))
            yield from (Path(folder, name) for name in sorted(files) if name.endswith(_SUFFIXES))


def _is_searched(folder: Path) -> bool:
    is_skipped = folder.name.startswith(".") or folder.name in _SKIPPED_FOLDERS
    return not is_skipped and not (folder / "pyvenv.cfg").exists()


def read_cells(path: Path) -> list[SourceCell]:
    """Return the code of a script, notebook or page. Raise `UnreadableFile` if that fails."""
    try:
        data = path.read_bytes()
        if path.suffix in _MARKDOWN_SUFFIXES:
            return list(_markdown_cells(data.decode(errors="replace")))
        return list(_notebook_cells(data)) if path.suffix == ".ipynb" else [SourceCell(data)]
    except OSError as error:
        raise UnreadableFile(error.strerror or str(error)) from error
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"no notebook: {error}") from error


def _markdown_cells(text: str) -> Iterator[SourceCell]:
    """Yield the blocks of Python, each at its line. Fragments count only if they name AutoGen."""
    text = text.replace("\r\n", "\n")
    for fence in _FENCE.finditer(text):
        language = find_language(fence["tag"])
        if language is None or language.name != "python":
            continue
        source = _without_magics(textwrap.dedent(fence["code"]))
        if _AUTOGEN.search(source) or _is_python(source):
            yield SourceCell("\n" * text.count("\n", 0, fence.start("code")) + source)


def _is_python(source: str) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _notebook_cells(data: bytes) -> Iterator[SourceCell]:
    """Yield the code cells of a notebook."""
    for number, source in notebook_code(data)[1]:
        yield from _source_cells(source, number)


def _source_cells(source: str, number: int) -> Iterator[SourceCell]:
    """Yield the cell as Python; a cell of another language only if it mentions AutoGen."""
    head, _, body = source.lstrip().partition("\n")
    if not head.startswith("%%"):
        yield SourceCell(_without_magics(source), number)
        return
    magic = head.removeprefix("%%").split(maxsplit=1)[:1]
    if set(magic) <= _PYTHON_MAGICS:
        for cell in _source_cells(body, number):
            yield dataclasses.replace(cell, source=f"#\n{cell.source}")
    elif _AUTOGEN.search(source):
        problem = f"a cell with the magic %%{''.join(magic)} is not read, and mentions AutoGen"
        yield SourceCell("", number, problem)


def _without_magics(source: str) -> str:
    """Return `source` as Python: IPython's `%magic` and `!command` lines become calls."""
    from IPython.core.inputtransformer2 import TransformerManager  # slow, and for notebooks only

    return TransformerManager().transform_cell(source)
