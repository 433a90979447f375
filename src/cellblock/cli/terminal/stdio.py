"""Standard output and standard error of the command."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Mapping

import click

from .render import StyledText

PrintNote = Callable[[str], None]


def write(pieces: Iterable[StyledText]) -> None:
    """Write each piece to its stream."""
    for piece in pieces:
        click.echo(_styled(piece), nl=False, err=piece.stream == "stderr")


def _styled(piece: StyledText) -> str:
    match piece.style:
        case "plain":
            return piece.text
        case "dim":
            return click.style(piece.text, dim=True)
        case "bold":
            return click.style(piece.text, bold=True)


def replace_unencodable() -> None:
    """Replace characters that the encoding of the streams lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # it is None if closed
            stream.reconfigure(errors="backslashreplace")


def has_colours(environment: Mapping[str, str]) -> bool:
    """Return True if standard output is a terminal with colours, and they are not unwanted."""
    return (
        not environment.get("NO_COLOR")
        and environment.get("TERM", "dumb") != "dumb"
        and bool(sys.stdout and sys.stdout.isatty())
    )


def have_same_destination() -> bool:
    """Return True if both streams go to the same terminal, pipe or file."""
    try:
        return os.path.samestat(os.fstat(sys.stdout.fileno()), os.fstat(sys.stderr.fileno()))
    except (OSError, ValueError, AttributeError):  # closed, or without a file descriptor
        return False
