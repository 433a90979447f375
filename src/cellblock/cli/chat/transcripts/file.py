"""The file of a transcript: its suffix says which format it has."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ....errors import WorkspaceError
from .entries import Entry
from .markdown_file import from_markdown, to_markdown
from .notebook_file import to_notebook
from .notebook_reader import from_notebook
from .saved_options import SavedOptions, options_comment

_NOTEBOOK = ".ipynb"
SUFFIXES = (".md", _NOTEBOOK)


def has_content(path: Path) -> bool:
    """Return True if there is a file at `path` that saving would replace."""
    return path.exists() and (not path.is_file() or path.stat().st_size > 0)


def write_transcript(
    path: Path, entries: Sequence[Entry], options: SavedOptions | None = None
) -> None:
    """Replace the file `path` in one step. Raise `WorkspaceError` if it cannot be written."""
    path = path.absolute()
    if path.suffix == _NOTEBOOK:
        text = to_notebook(entries, options)
    else:
        comment = "" if options is None else options_comment(options)
        text = comment + to_markdown(entries, str(path.parent))
    try:
        _replace(path, text)
    except OSError as error:
        raise WorkspaceError(
            f"The transcript cannot be written to {path}: {error.strerror}. "
            "Use another file with --save."
        ) from error


def _replace(path: Path, text: str) -> None:
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def read_transcript(path: Path) -> list[Entry]:
    """Return the entries in the file `path`. Raise `ValueError` if it cannot be read."""
    path = path.absolute()
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == _NOTEBOOK:
            return from_notebook(text)
        return from_markdown(text, str(path.parent))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} cannot be read: it is not UTF-8 text.") from error
    except ValueError as error:
        raise ValueError(
            f"{path} cannot be read: {error}. Use a file that --save has written."
        ) from error
