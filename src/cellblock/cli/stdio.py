"""The command's own two output streams."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable

import click

from .render import Piece

Note = Callable[[str], None]


def write(pieces: Iterable[Piece]) -> None:
    """Write `pieces`, each to its stream."""
    for piece in pieces:
        click.echo(_styled(piece), nl=False, err=piece.stream == "stderr")


def _styled(piece: Piece) -> str:
    match piece.style:
        case "plain":
            return piece.text
        case "dim":
            return click.style(piece.text, dim=True)
        case "bold":
            return click.style(piece.text, bold=True)


def accept_any_text() -> None:
    """Have what the streams' encoding lacks replaced: a program may print anything anywhere."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not when it is closed
            stream.reconfigure(errors="backslashreplace")


def is_one_place() -> bool:
    """Tell whether both streams end at the same place."""
    try:
        return os.path.samestat(os.fstat(sys.stdout.fileno()), os.fstat(sys.stderr.fileno()))
    except (OSError, ValueError, AttributeError):  # closed, or not of the system
        return False
