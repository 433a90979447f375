"""What blocks did: the results, the errors that carry one, and the fold of events into a result."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Self

from .errors import CellblockError
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
from .notebook import result_html
from .startup_files import is_startup_file

_REPR_CHARACTERS = 60  # of the output that `repr` shows


@dataclass(repr=False)
class BlockResult:
    """What one block did.

    code_file   the file that holds the block's code, an absolute path; None if there is none

    The other fields are those of `CodeResult`.
    """

    language: str
    exit_code: int = 0
    output: str = ""
    stdout: str = field(default="", compare=False)
    stderr: str = field(default="", compare=False)
    outcome: Outcome = field(default="ok", compare=False)
    limit: str | None = field(default=None, compare=False)
    usage: Usage = field(default=Usage(), compare=False)
    code_file: str | None = field(default=None, compare=False)
    files: list[str] = field(default_factory=list[str])
    displays: list[Mapping[str, Any]] = field(
        default_factory=list[Mapping[str, Any]], compare=False
    )
    output_files: list[Path] = field(default_factory=list[Path])
    session_restored: bool = field(default=False, compare=False)
    notice: str = field(default="", compare=False)
    truncated: bool = field(default=False, compare=False)
    lost_blocks: int = field(default=0, compare=False)

    @property
    def startup_files(self) -> list[str]:
        """See `CodeResult`."""
        return [path for path in self.files if is_startup_file(path)]

    def __repr__(self) -> str:
        return _describe(self)


@dataclass(repr=False)
class CodeResult:
    """What the blocks of one call did.

    exit_code   exit status of the last block that ran
    output      stdout and stderr in the order of writing, then a message if a block was ended
    stdout      what the programs wrote to standard output
    stderr      what the programs wrote to standard error
    outcome     how the last block that ran ended
    limit       the field of `Limits` that ended it; None if no limit did
    usage       what all blocks used
    files       the files that the blocks created or changed, relative to the work folder
    displays    the MIME bundles that the blocks displayed
    truncated   True if output over the limit `output_bytes` was left out
    notice      what happened apart from the blocks, such as a session that was restored or lost
                variables; "" if nothing did
    session_restored   True if a block ended the process of a live session, and the variables were
                restored to their values before that block
    lost_blocks number of earlier blocks of a live session whose variables are lost
    blocks      one `BlockResult` for each block that ran or was refused

    In the three texts, U+FFFD replaces bytes that are not UTF-8, NUL and the escape character.

    Paths are text, in results and in events. Those in the work folder that blocks created are
    relative to it: `files`, `FileCreated.path`. The others are absolute: `code_file` (but for a
    container with a relative `work_dir`, as in AutoGen), `Display.files`. Only `output_files`
    contains `Path` objects, which are absolute.

    Two results are equal if their exit code, output, files and output files are.
    """

    exit_code: int
    output: str
    stdout: str = field(default="", compare=False, kw_only=True)
    stderr: str = field(default="", compare=False, kw_only=True)
    outcome: Outcome = field(default="ok", compare=False, kw_only=True)
    limit: str | None = field(default=None, compare=False, kw_only=True)
    usage: Usage = field(default=Usage(), compare=False, kw_only=True)
    files: list[str] = field(default_factory=list[str], kw_only=True)
    displays: list[Mapping[str, Any]] = field(
        default_factory=list[Mapping[str, Any]], compare=False, kw_only=True
    )
    truncated: bool = field(default=False, compare=False, kw_only=True)
    notice: str = field(default="", compare=False, kw_only=True)
    session_restored: bool = field(default=False, compare=False, kw_only=True)
    lost_blocks: int = field(default=0, compare=False, kw_only=True)
    blocks: list[BlockResult] = field(
        default_factory=list[BlockResult], compare=False, kw_only=True
    )

    @property
    def startup_files(self) -> list[str]:
        """Those of `files` that other programs may run later with your rights.

        Examples are `.git/hooks/pre-commit`, `.envrc` and `.bashrc`. Check them, or remove them.
        """
        return [path for path in self.files if is_startup_file(path)]

    def check(self) -> Self:
        """Return the result if its outcome is "ok"; otherwise raise the matching `ExecutionError`.

        Raise `ExecutionTimeout`, `ExecutionCancelled` or `ExecutionFailed`.
        """
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

    def __repr__(self) -> str:
        return _describe(self)

    def _repr_html_(self) -> str:
        return result_html(self.output, self.displays)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return what a notebook shows: the output, and the pictures and pages displayed."""
        return {"text/plain": self.output or repr(self), "text/html": self._repr_html_()}


class ExecutionError(CellblockError, RuntimeError):
    """A block did not end with outcome "ok". `result` is the whole result."""

    def __init__(self, message: str, result: CodeResult) -> None:
        super().__init__(message)
        self.result = result


class ExecutionTimeout(ExecutionError, TimeoutError):
    """A time limit ended the block."""


class ExecutionCancelled(ExecutionError):
    """The cancellation token ended the block."""


class ExecutionFailed(ExecutionError):
    """The program failed, was killed, or ran out of memory."""


@dataclass(repr=False)
class CommandLineCodeResult(CodeResult):
    """The result of a command-line executor. `code_file` is the file of the first block."""

    code_file: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{super().__str__()} code_file={self.code_file!r}"


@dataclass(repr=False)
class SessionCodeResult(CodeResult):
    """The result of a live session.

    output_files   the images and HTML pages among the displays, one file for each display
    code_file      the file of the first block that has one
    """

    output_files: list[Path] = field(default_factory=list[Path])
    code_file: str | None = field(default=None, compare=False, kw_only=True)

    def __str__(self) -> str:
        return f"{super().__str__()} output_files={[str(path) for path in self.output_files]!r}"


@dataclass(repr=False)
class JupyterCodeResult(SessionCodeResult):
    """The result of a Jupyter kernel."""


class ResultBuilder:
    """Build a result from events, one event at a time. Pure: no I/O, no clock."""

    def __init__(self) -> None:
        self.blocks: list[BlockResult] = []
        self._parts: list[list[tuple[str, str]]] = []

    def add_event(self, event: Event) -> None:
        """Add the next event."""
        match event:
            case Started(language=language, code_file=code_file):
                self.blocks.append(BlockResult(language, code_file=code_file))
                self._parts.append([])
            case Output(stream=stream, text=text):
                self._parts[-1].append((stream, text))
            case OutputTruncated(stdout_bytes=out, stderr_bytes=err):
                self.blocks[-1].truncated = True
                self._parts[-1] += [
                    ("marker", truncation_marker(out + err)),
                    ("stdout marker", truncation_marker(out)),
                    ("stderr marker", truncation_marker(err)),
                ]
            case Display(data=data, files=files):
                self.blocks[-1].displays.append(data)
                self.blocks[-1].output_files += [Path(path) for path in files]
            case FileCreated(path=path):
                self.blocks[-1].files.append(path)
            case Ended():
                self._end_block(event)
            case PullProgress():
                pass  # not something that the block did

    def _end_block(self, event: Ended) -> None:
        block, parts = self.blocks[-1], self._parts[-1]
        block.exit_code, block.outcome, block.limit = event.exit_code, event.outcome, event.limit
        block.usage, block.session_restored = event.usage, event.session_restored
        block.notice, block.lost_blocks = event.notice, event.lost_blocks
        block.stdout = _join_parts(parts, "stdout", "stdout marker")
        block.stderr = _join_parts(parts, "stderr", "stderr marker")
        block.output = _join_parts(parts, "stdout", "stderr", "marker") + event.message
        # Variables are lost: someone who reads only the output must learn it.
        if event.notice and not event.session_restored:
            block.output += f"\n{event.notice}"
        parts.clear()

    def result(self) -> CommandLineCodeResult:
        """Return the result of all blocks so far."""
        if not self.blocks:
            return CommandLineCodeResult(0, "")
        return CommandLineCodeResult(
            **self._common_fields(self._merged_block()), code_file=self.blocks[0].code_file
        )

    def session_result(
        self, kind: type[SessionCodeResult] = SessionCodeResult
    ) -> SessionCodeResult:
        """Return the result of all blocks so far as a session's result of class `kind`."""
        if not self.blocks:
            return kind(0, "")
        whole = self._merged_block()
        return kind(
            **self._common_fields(whole),
            output_files=list(whole.output_files),
            code_file=whole.code_file,
        )

    def _merged_block(self) -> BlockResult:
        """Return the results of all blocks so far merged into one."""
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
            any([block.truncated for block in blocks]),
            sum([block.lost_blocks for block in blocks]),
        )

    def _common_fields(self, whole: BlockResult) -> dict[str, Any]:
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
            "truncated": whole.truncated,
            "notice": whole.notice,
            "session_restored": whole.session_restored,
            "lost_blocks": whole.lost_blocks,
            "blocks": self.blocks,
        }


def _join_parts(parts: list[tuple[str, str]], *kinds: str) -> str:
    return "".join([text for kind, text in parts if kind in kinds])


def _describe(result: BlockResult | CodeResult) -> str:
    """Return one line about a result, with the beginning of its output."""
    output = result.output
    shown = repr(output[:_REPR_CHARACTERS]) + ("..." if len(output) > _REPR_CHARACTERS else "")
    facts = [f"outcome={result.outcome!r}", f"exit_code={result.exit_code}", f"output={shown}"]
    if result.limit is not None:
        facts.append(f"limit={result.limit!r}")
    if result.files:
        facts.append(f"{len(result.files)} files")
    if result.displays:
        facts.append(f"{len(result.displays)} displays")
    return f"{type(result).__name__}({', '.join(facts)})"


def fold(events: Iterable[Event]) -> CommandLineCodeResult:
    """Return the result of `events`."""
    builder = ResultBuilder()
    for event in events:
        builder.add_event(event)
    return builder.result()


def truncation_marker(size: int) -> str:
    """Return the text that replaces `size` bytes of truncated output; "" for 0 bytes."""
    return f"\n[... {size} bytes left out ...]\n" if size else ""
