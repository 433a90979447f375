"""Judge the programs of a file, write their verdicts, and show how far it is."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Generator

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from ..aio.shielded import run_in_thread
from ..batch.journal import Journal
from ..batch.programs import JudgeLimits
from ..batch.run import run_many
from ..batch.summary import Summary
from ..batch.verdicts import Verdict
from .options.factory import install_progress, make_executor
from .options.settings import BatchSettings
from .program_file import ProgramFile
from .terminal.interrupts import BatchInterrupts
from .terminal.render import printable_line
from .terminal.stdio import replace_unencodable

_EXIT_NOT_PASSED, _EXIT_NOT_JUDGED = 1, 3
_COUNTS = "{task.fields[counts]}"
_MAX_REASONS = 5  # programs of which is said why they were not judged


def judge_file(settings: BatchSettings) -> int:
    """Judge the programs, and return the command's exit code.

    Raise `CellblockError` if the sandbox cannot be used, `InvalidProgramFile` for a bad line.
    """
    replace_unencodable()
    programs = ProgramFile(settings.file, settings.form, settings.samples)
    # Both read whole files, which Ctrl-C can interrupt outside of an event loop.
    found, total = programs.read_index(), None
    with Journal(settings.output) as journal:
        if found is not None:
            index, total = found
            with contextlib.closing(index):
                journal.check_programs(index)
        return asyncio.run(_execute(programs, total, settings, journal))


async def _execute(
    programs: ProgramFile, total: int | None, settings: BatchSettings, journal: Journal
) -> int:
    display = _Display()
    with BatchInterrupts(display.note) as interrupts:
        try:
            with display.bar(total), install_progress(display.note):
                await _judge_all(programs, settings, journal, display)
            if not display.summary.total:
                raise programs.is_empty()
            if not settings.as_completed:
                await run_in_thread(journal.sort)
        except asyncio.CancelledError:
            if not interrupts.exit_code:
                raise
            display.note(f"stopped: {display.summary}; the same command continues")
            return interrupts.exit_code
        finally:
            interrupts.set_stopping()
    display.note(str(display.summary))
    return _exit_code(display.summary)


async def _judge_all(
    programs: ProgramFile, settings: BatchSettings, journal: Journal, display: _Display
) -> None:
    """Judge the programs that have no verdict in `journal`."""
    verdicts = run_many(
        programs.programs(),
        executor=make_executor(settings, None, display.note),
        concurrency=settings.concurrency,
        limits=_limits(settings),
        cluster=settings.ray,
        ordered=False,  # the file is sorted at the end
        journal=journal,
        on_progress=display.show,
    )
    async with contextlib.aclosing(verdicts):
        async for verdict in verdicts:
            if verdict.outcome == "not_judged":
                display.note_reason(verdict)


def _limits(settings: BatchSettings) -> JudgeLimits:
    default = JudgeLimits()
    return JudgeLimits(
        cpu_seconds=settings.cpu_seconds,
        wall_seconds=settings.timeout,
        memory_bytes=settings.memory_bytes or default.memory_bytes,
    )


def _exit_code(summary: Summary) -> int:
    if summary.outcomes["not_judged"]:
        return _EXIT_NOT_JUDGED
    return 0 if summary.outcomes["passed"] == summary.total else _EXIT_NOT_PASSED


class _Display:
    """Standard error: notes, and a bar if it is a terminal."""

    def __init__(self) -> None:
        self.summary = Summary()
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def note(self, text: str) -> None:
        """Print a note on a line of its own."""
        self._console.print(Text(f"--- {printable_line(text)}"), style="dim")

    def note_reason(self, verdict: Verdict) -> None:
        """Say why a program was not judged, for the first ones."""
        if (count := self.summary.outcomes["not_judged"]) <= _MAX_REASONS:
            self.note(f"not judged: {verdict.id}: {verdict.message}")
        elif count == _MAX_REASONS + 1:
            self.note("not judged: more programs")

    @contextlib.contextmanager
    def bar(self, total: int | None) -> Generator[None]:
        """Show a bar for `total` programs in this context."""
        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn(_COUNTS))
        with Progress(*columns, console=self._console, disable=not sys.stderr.isatty()) as bar:
            self._bar, self._task = bar, bar.add_task("", total=total, counts="")
            yield
        self._bar = None

    def show(self, summary: Summary) -> None:
        """Show how far the batch is."""
        self.summary = summary
        if self._bar is not None:
            counts = summary.counts()
            self._bar.update(self._task, completed=summary.total, counts=counts)
