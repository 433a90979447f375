"""Events as text for two streams. Pure: no I/O, no clock, no terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ..blocks import CodeBlock, file_name
from ..events import (
    Display,
    Ended,
    Event,
    FileCreated,
    Output,
    OutputTruncated,
    PullProgress,
    Started,
    Stream,
)
from ..results import cut_mark
from .sizes import format_size

Style = Literal["plain", "dim", "bold"]
_MOST_FILES = 20  # named for each block


@dataclass(frozen=True)
class Piece:
    """Text to be written to a stream as it is; `style` is for terminals."""

    stream: Stream
    text: str
    style: Style = "plain"


class Renderer:
    """Make pieces of events: what programs wrote as they wrote it, and notes of ours, on stderr, on lines of their own.

    one_place   both streams go to the same place, a terminal say, so that what one wrote moves the other's line
    folder      the work folder, as it is to be shown
    """

    def __init__(self, blocks: Sequence[CodeBlock], *, folder: str, one_place: bool) -> None:
        self._blocks, self._folder, self._one_place = blocks, folder, one_place
        self._mid_line = False
        self._files: list[FileCreated] = []

    def pieces(self, event: Event) -> Iterator[Piece]:
        """Give what is to be written for `event`."""
        match event:
            case Started(block=number, language=language):
                yield from self.note(self._heading(number, language), "bold")
            case Output(stream=stream, text=text):
                yield self._written(stream, text)
            case OutputTruncated(stdout_bytes=out, stderr_bytes=err):
                yield self._written("stdout", cut_mark(out))
                yield self._written("stderr", cut_mark(err))
            case Display(data=data, files=files):
                # What has text was written as output, and files are named at the end.
                if "text/plain" not in data and not files:
                    yield from self.note(f"shown: {', '.join(data)}")
            case FileCreated():
                self._files.append(event)
            case Ended():
                yield from self._end(event)
            case PullProgress():
                pass  # the executor is started before blocks run, and what is to be told of that is noted then

    def note(self, text: str, style: Style = "dim") -> Iterator[Piece]:
        """Give a line of ours."""
        yield from self.fresh_line()
        yield Piece("stderr", f"--- {harmless(text)}\n", style)

    def fresh_line(self) -> Iterator[Piece]:
        """Give what ends the line that a program left unfinished where our notes go; nothing where there is none."""
        if self._mid_line:
            self._mid_line = False
            yield Piece("stderr", "\n")

    def _written(self, stream: Stream, text: str) -> Piece:
        if text and (stream == "stderr" or self._one_place):
            self._mid_line = not text.endswith("\n")
        return Piece(stream, text)

    def _heading(self, number: int, language: str) -> str:
        name = file_name(self._blocks[number].code)
        return (
            f"block {number + 1} of {len(self._blocks)}: {language}{f' ({name})' if name else ''}"
        )

    def _end(self, ended: Ended) -> Iterator[Piece]:
        files, self._files = self._files, []
        for file in files[:_MOST_FILES]:
            path = os.path.join(self._folder, file.path)
            yield from self.note(f"made {path} ({format_size(file.size_bytes)})")
        if len(files) > _MOST_FILES:
            yield from self.note(f"made {len(files) - _MOST_FILES} more files")
        if summary := _summary(ended):
            yield from self.note(summary, "bold")


def _summary(ended: Ended) -> str:
    """Say how a block ended that did not end well."""
    parts = [ended.message.strip()]
    if ended.limit and ended.limit not in ended.message:
        parts.append(f"limit {ended.limit}")
    # Of a cancelled block nobody asks its exit code: the command's own is another.
    if ended.exit_code and ended.outcome != "cancelled":
        parts.append(f"exit code {ended.exit_code}")
    parts.append(ended.notice)
    return "; ".join(part.rstrip(".") for part in parts if part)


def harmless(text: str) -> str:
    """Give `text` on one line, without control sequences: names of files and languages are not of our making."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)
