"""Render events as text for standard output and standard error. Pure: no I/O, no clock."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ...blocks import CodeBlock, file_name
from ...events import (
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
from ...limits import Limits
from ...results import truncation_marker
from ...startup_files import is_startup_file
from ..advice import Advisor
from ..sizes import format_size

Style = Literal["plain", "dim", "bold"]
_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)  # on all systems
_MAX_LISTED_FILES = 20  # per block
# Executors replace the escape character by U+FFFD. What follows it can only change the colours.
_COLOUR = re.compile(r"\ufffd(\[[0-9;]{0,30}m)")


@dataclass(frozen=True)
class StyledText:
    """Text to write to a stream unchanged; `style` applies to terminals."""

    stream: Stream
    text: str
    style: Style = "plain"


class Renderer:
    """Render output unchanged, and notes on separate lines of standard error.

    same_destination   True if both streams go to the same terminal or file
    folder             the work folder, as the user wrote it
    advisor            knows the limits and the network of the blocks
    has_colours        True if the output goes to a terminal with colours
    was_there          returns True for a file, relative to `folder`, that is not new
    """

    def __init__(
        self,
        blocks: Sequence[CodeBlock],
        *,
        folder: str,
        same_destination: bool,
        advisor: Advisor | None = None,
        has_colours: bool = False,
        was_there: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._was_there, self._created = was_there, set[str]()
        self._has_colours = has_colours
        self._coloured = dict[Stream, bool]()  # whether the stream's last colour is on
        self._blocks, self._folder, self._same_destination = blocks, folder, same_destination
        self._advisor = advisor or Advisor(Limits.unlimited(), has_network=True)
        self._mid_line = False
        self._files: list[FileCreated] = []

    def render(self, event: Event) -> Iterator[StyledText]:
        """Yield the text for `event`."""
        match event:
            case Started(block=number, language=language):
                yield from self.note(self._heading(number, language), "bold")
            case Output(stream=stream, text=text):
                self._advisor.add_output(text)
                yield self._program_output(stream, text)
            case OutputTruncated(stdout_bytes=out, stderr_bytes=err):
                yield self._program_output("stdout", truncation_marker(out))
                yield self._program_output("stderr", truncation_marker(err))
                yield from self.note(self._truncation_note(out + err))
            case Display(data=data, files=files):
                # Plain text is written as output already, and files are listed at the end.
                if "text/plain" not in data and not files:
                    yield from self.note(f"displayed: {', '.join(data)}")
            case FileCreated():
                self._files.append(event)
            case Ended():
                yield from self._render_end(event)
            case PullProgress():
                pass  # printed while the executor starts

    def note(self, text: str, style: Style = "dim") -> Iterator[StyledText]:
        """Yield a note, on a separate line."""
        yield from self.start_new_line()
        yield StyledText("stderr", f"--- {printable_line(text)}\n", style)

    def start_new_line(self) -> Iterator[StyledText]:
        """Yield a line end if a program left the line unfinished where notes are written."""
        if self._mid_line:
            self._mid_line = False
            yield StyledText("stderr", "\n")

    def _program_output(self, stream: Stream, text: str) -> StyledText:
        if self._has_colours and (codes := _COLOUR.findall(text)):
            self._coloured[stream] = codes[-1] not in ("[m", "[0m")
            text = _COLOUR.sub("\x1b\\1", text)
        if text and (stream == "stderr" or self._same_destination):
            self._mid_line = not text.endswith("\n")
        return StyledText(stream, text)

    def _truncation_note(self, size: int) -> str:
        limit = self._advisor.describe_limit("output_bytes") or "the limit of output"
        return f"{format_size(size)} of output are left out: {limit} applies to output at the end"

    def _heading(self, number: int, language: str) -> str:
        name = file_name(self._blocks[number].code)
        return (
            f"block {number + 1} of {len(self._blocks)}: {language}{f' ({name})' if name else ''}"
        )

    def _render_end(self, ended: Ended) -> Iterator[StyledText]:
        for stream, is_on in self._coloured.items():
            if is_on:
                yield StyledText(stream, "\x1b[0m")
        self._coloured.clear()
        # A long list must not hide startup files.
        files = sorted(self._files, key=lambda file: not is_startup_file(file.path))
        self._files = []
        for file in files[:_MAX_LISTED_FILES]:
            path = os.path.join(self._folder, file.path)
            warning = "; other programs may run it" if is_startup_file(file.path) else ""
            is_new = not (file.path in self._created or self._was_there(file.path))
            verb = "created" if is_new else "changed"
            yield from self.note(f"{verb} {path} ({format_size(file.size_bytes)}){warning}")
        if len(files) > _MAX_LISTED_FILES:
            yield from self.note(f"created {len(files) - _MAX_LISTED_FILES} more files")
        self._created.update(file.path for file in files)
        if summary := self._summary(ended):
            yield from self.note(summary, "bold")
        for advice in self._advisor.advise(ended):
            yield from self.note(advice)

    def _summary(self, ended: Ended) -> str:
        """Return how the block ended; "" if its outcome is "ok"."""
        limit = self._advisor.describe_limit(ended.limit) if ended.limit else ""
        if limit:
            what, _, _ = ended.message.strip().partition(":")
            return _join_parts(f"{what}: {limit}", ended)
        parts = ended.message.strip()
        if ended.limit and ended.limit not in ended.message:
            parts += f"; limit {ended.limit}"
        return _join_parts(parts, ended)


def _join_parts(reason: str, ended: Ended) -> str:
    """Return `reason`, the exit code and the notice, as far as there are any."""
    parts = [reason]
    # The exit code of a cancelled block differs from that of the command and would confuse.
    if ended.exit_code and ended.outcome != "cancelled":
        parts.append(f"exit code {ended.exit_code}{_crash(ended.exit_code)}")
    parts.append(ended.notice)
    return "; ".join(part.rstrip(".") for part in parts if part)


def _crash(exit_code: int) -> str:
    """Return the signal of a crash that `exit_code` stands for, such as " (SIGSEGV: ...)"."""
    for number in _CRASHES:
        if exit_code == 128 + number:
            return f" ({number.name}: {signal.strsignal(number)})"
    return ""


def printable_line(text: str) -> str:
    """Return `text` on one line, without control characters, which a file name may contain."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def format_table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return `rows` as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
