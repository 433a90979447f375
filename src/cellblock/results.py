"""Results, and the fold that makes one from events."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from .errors import ExecutionCancelled, ExecutionFailed, ExecutionTimeout
from .events import (
    Display,
    Ended,
    Event,
    FileCreated,
    Outcome,
    Output,
    OutputTruncated,
    PullProgress,
    Started,
    Usage,
)


@dataclass
class BlockResult:
    """What one block did. `code_file` is its file, when it has one; `files` are relative to the work folder."""

    language: str
    exit_code: int = 0
    output: str = ""
    stdout: str = ""
    stderr: str = ""
    outcome: Outcome = "ok"
    limit: str | None = None
    usage: Usage = Usage()
    code_file: str | None = None
    files: list[str] = field(default_factory=list[str])
    displays: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    output_files: list[Path] = field(default_factory=list[Path])
    session_restored: bool = False
    notice: str = ""


@dataclass
class CodeResult:
    """What the blocks of one call did.

    `output` holds stdout and stderr in the order in which they were written, and what is to say of the end;
    `stdout` and `stderr` hold what the programs wrote, apart; in all three U+FFFD stands for what is not UTF-8, NUL and the
    escape character. `exit_code`, `outcome` and `limit` are those of the last block that ran. `blocks` has one
    `BlockResult` for each block that ran or was refused.
    """

    exit_code: int
    output: str
    stdout: str = field(default="", kw_only=True)
    stderr: str = field(default="", kw_only=True)
    outcome: Outcome = field(default="ok", kw_only=True)
    limit: str | None = field(default=None, kw_only=True)
    usage: Usage = field(default=Usage(), kw_only=True)
    files: list[str] = field(default_factory=list[str], kw_only=True)
    displays: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]], kw_only=True)
    blocks: list[BlockResult] = field(default_factory=list[BlockResult], kw_only=True)

    def check(self) -> CodeResult:
        """Give the result back, or raise `ExecutionTimeout`, `ExecutionCancelled` or `ExecutionFailed` with it."""
        match self.outcome:
            case "ok":
                return self
            case "timeout":
                raise ExecutionTimeout(f"The time limit ended the code.\n{self.output}", self)
            case "cancelled":
                raise ExecutionCancelled(f"The code was cancelled.\n{self.output}", self)
            case "error" | "killed" | "out_of_memory":
                raise ExecutionFailed(
                    f"The code ended with exit code {self.exit_code}.\n{self.output}", self
                )

    def __str__(self) -> str:
        return f"exit_code={self.exit_code} output={self.output!r}"


@dataclass
class CommandLineCodeResult(CodeResult):
    """A result of a command-line executor; `code_file` is the first block's file."""

    code_file: str | None = None

    def __str__(self) -> str:
        return f"{super().__str__()} code_file={self.code_file!r}"


@dataclass
class SessionCodeResult(CodeResult):
    """A result of a live session.

    `output_files` are the pictures and pages among the displays, as files. `session_restored`: a block took the session down,
    and it has the variables of before that block again. `notice` says what became of a session that could not simply go on.
    `code_file` is the file of the first block that has one.
    """

    output_files: list[Path] = field(default_factory=list[Path])
    session_restored: bool = field(default=False, kw_only=True)
    notice: str = field(default="", kw_only=True)
    code_file: str | None = field(default=None, kw_only=True)

    def __str__(self) -> str:
        return f"{super().__str__()} output_files={[str(path) for path in self.output_files]!r}"


@dataclass
class JupyterCodeResult(SessionCodeResult):
    """A result of a Jupyter kernel."""


class Folder:
    """Fold events into block results, one at a time. Pure: no I/O, no clock."""

    def __init__(self) -> None:
        self.blocks: list[BlockResult] = []
        self._parts: list[list[tuple[str, str]]] = []

    def add(self, event: Event) -> None:
        """Take in the next event."""
        match event:
            case Started(language=language, code_file=code_file):
                self.blocks.append(BlockResult(language, code_file=code_file))
                self._parts.append([])
            case Output(stream=stream, text=text):
                self._parts[-1].append((stream, text))
            case OutputTruncated(stdout_bytes=out, stderr_bytes=err):
                self._parts[-1] += [("cut", cut_mark(out + err)), ("cut stdout", cut_mark(out))]
                self._parts[-1].append(("cut stderr", cut_mark(err)))
            case Display(data=data, files=files):
                self.blocks[-1].displays.append(data)
                self.blocks[-1].output_files += [Path(path) for path in files]
            case FileCreated(path=path):
                self.blocks[-1].files.append(path)
            case Ended():
                self._end(event)
            case PullProgress():
                pass  # no part of what the block did

    def _end(self, event: Ended) -> None:
        block, parts = self.blocks[-1], self._parts[-1]
        block.exit_code, block.outcome, block.limit = event.exit_code, event.outcome, event.limit
        block.usage, block.session_restored, block.notice = (
            event.usage,
            event.session_restored,
            event.notice,
        )
        block.stdout = _joined(parts, "stdout", "cut stdout")
        block.stderr = _joined(parts, "stderr", "cut stderr")
        block.output = _joined(parts, "stdout", "stderr", "cut") + event.message
        if (
            event.notice and not event.session_restored
        ):  # something is lost: whoever reads the output must know
            block.output += f"\n{event.notice}"
        parts.clear()

    def result(self) -> CommandLineCodeResult:
        """Give the result of all blocks so far."""
        if not self.blocks:
            return CommandLineCodeResult(0, "")
        return CommandLineCodeResult(
            **self._common(self._whole()), code_file=self.blocks[0].code_file
        )

    def session_result(
        self, kind: type[SessionCodeResult] = SessionCodeResult
    ) -> SessionCodeResult:
        """Give the result of all blocks so far, of a session."""
        if not self.blocks:
            return kind(0, "")
        whole = self._whole()
        return kind(
            **self._common(whole),
            output_files=list(whole.output_files),
            session_restored=whole.session_restored,
            code_file=whole.code_file,
            notice=whole.notice,
        )

    def _whole(self) -> BlockResult:
        """Give what all blocks so far did, as if they were one, which they nearly always are."""
        blocks, last = self.blocks, self.blocks[-1]
        if len(blocks) == 1:
            return last
        return BlockResult(
            last.language,
            last.exit_code,
            "".join([block.output for block in blocks]),
            "".join([block.stdout for block in blocks]),
            "".join([block.stderr for block in blocks]),
            last.outcome,
            last.limit,
            functools.reduce(operator.add, [block.usage for block in blocks]),
            next((block.code_file for block in blocks if block.code_file), None),
            list(chain.from_iterable([block.files for block in blocks])),
            list(chain.from_iterable([block.displays for block in blocks])),
            list(chain.from_iterable([block.output_files for block in blocks])),
            any([block.session_restored for block in blocks]),
            "\n".join([block.notice for block in blocks if block.notice]),
        )

    def _common(self, whole: BlockResult) -> dict[str, Any]:
        return {
            "exit_code": whole.exit_code,
            "output": whole.output,
            "stdout": whole.stdout,
            "stderr": whole.stderr,
            "outcome": whole.outcome,
            "limit": whole.limit,
            "usage": whole.usage,
            "files": list(dict.fromkeys(whole.files)),
            "displays": list(whole.displays),
            "blocks": self.blocks,
        }


def _joined(parts: list[tuple[str, str]], *kinds: str) -> str:
    return "".join([text for kind, text in parts if kind in kinds])


def fold(events: Iterable[Event]) -> CommandLineCodeResult:
    """Make the result of `events`."""
    folder = Folder()
    for event in events:
        folder.add(event)
    return folder.result()


def cut_mark(size: int) -> str:
    """Give the text that stands where `size` bytes of output were left out; nothing for 0."""
    return f"\n[... {size} bytes left out ...]\n" if size else ""
