"""ServedExecutor: what the server needs of an executor, wherever it is."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from ...batch.programs import JudgeLimits, Program
from ...batch.verdicts import Verdict
from ...blocks import CodeBlock
from ...box.output import MAX_OUTPUT_BYTES, Piece
from ...box.results import CommandResult
from ...cancellation import CancellationToken
from ...events import Event
from ...executors.command_line.program import ProgramRun
from ...executors.displays import NoDisplayFiles
from ...executors.run_options import RunOptions
from ...executors.session.checkpoint import Checkpoint
from ...results import CodeResult
from ..owners import Owner
from .session_files import RoomFor, SessionFiles

_SESSION_OPTIONS = RunOptions(
    no_input="input() is not available here. Put the values into the code or a file.",
    displays=NoDisplayFiles(),
)

Work = CodeBlock | ProgramRun
CommandItem = Piece | CommandResult


@dataclass(frozen=True, kw_only=True)
class CommandSettings:
    """What to run. See `Box.exec`. `seconds` can only shorten the time limit of the server."""

    command: str | Sequence[str]
    cwd: str | None = None
    env: Mapping[str, str] | None = None
    stdin: bytes | None = None
    seconds: float | None = None
    merges_stderr: bool = False
    max_output_bytes: int = MAX_OUTPUT_BYTES


@dataclass(frozen=True, kw_only=True)
class JudgedWork:
    """What to judge. See `ProgramRuns`. `written_bytes` is what all its runs may write together."""

    program: Program
    limits: JudgeLimits
    seconds: float
    written_bytes: int | None


class ServedExecutor(Protocol):
    """What the server needs of an executor, on this machine or another one.

    node_id   Ray's ID of the node that has it; None for this machine

    Without a live interpreter, it runs blocks and programs as fresh processes, and has neither
    checkpoints nor commands.
    """

    is_live: bool
    node_id: str | None = None

    @property
    def options(self) -> RunOptions:
        """The options of all runs."""
        return _SESSION_OPTIONS if self.is_live else RunOptions(shows_value=True)

    def must_start(self) -> bool:
        """Return whether `start` has something to do."""
        ...

    async def start(self, session_id: str) -> None:
        """Start the executor, for a session. Raise what starting an executor raises."""
        ...

    async def run(self, work: Work, token: CancellationToken, options: RunOptions) -> CodeResult:
        """Run a block, or a program if there is no interpreter."""
        ...

    def stream(
        self, block: CodeBlock, token: CancellationToken, options: RunOptions
    ) -> AsyncGenerator[Event]:
        """Run a block, and yield its events."""
        ...

    def files(self, room_for: RoomFor) -> SessionFiles:
        """Return the files of the executor, which must be started."""
        ...

    async def judge(
        self,
        work: JudgedWork,
        token: CancellationToken,
        on_cpu_seconds: Callable[[float], object],
    ) -> Verdict:
        """Judge a program, if there is no interpreter. Raise `ExecutorStopped` if it is cancelled.

        `on_cpu_seconds` is called with what the runs of the program and its tests have used,
        however they end.
        """
        ...

    # with a live interpreter

    def command(self, settings: CommandSettings) -> AsyncGenerator[CommandItem]:
        """Run a command, and yield its output, and its result last. See `Box.exec_stream`."""
        ...

    async def cpu_seconds(self) -> float | None:
        """Return the CPU time of all processes since the start. None: it is not known."""
        ...

    async def complete(self, code: str, cursor: int, options: RunOptions) -> tuple[int, list[str]]:
        """See `SessionExecutor.complete`."""
        ...

    async def restart(self) -> None:
        """Delete the variables."""
        ...

    async def checkpoints(self) -> Sequence[Checkpoint]:
        """Return the checkpoints, oldest first. None before the start."""
        ...

    async def checkpoint(
        self,
        name: str | None,
        *,
        lifetime_seconds: float | None,
        replace: bool,
        end_commands: bool,
        max_copied_bytes: int | None,
    ) -> Checkpoint:
        """See `Box.checkpoint`."""
        ...

    async def drop(self, checkpoint: str) -> None:
        """See `Box.drop`."""
        ...

    async def restore(self, checkpoint: str, *, end_commands: bool) -> None:
        """See `Box.restore`."""
        ...

    async def fork(
        self, checkpoint: str | None, *, end_commands: bool, max_copied_bytes: int | None
    ) -> Self:
        """Return a copy, which is started. See `Box.fork`."""
        ...


class SessionFactory(Protocol):
    """Makes the executors of a server. Use it with `async with`.

    program_places   how many fresh programs run at one time without slowing each other down
    """

    program_places: int

    async def __aenter__(self) -> object: ...

    async def __aexit__(self, *_error: object) -> None: ...

    async def make(self, owner: Owner) -> ServedExecutor:
        """Return a live session that is not started yet.

        Raise `PolicyNotSupported`, `TooManySessions`, and what starting a server raises.
        """
        ...

    async def make_program(self, owner: Owner) -> ServedExecutor:
        """Return an executor of fresh processes, without traces of earlier ones.

        Raise as `make` does.
        """
        ...

    async def release(self, executor: ServedExecutor, *, is_idle: bool) -> None:
        """Stop an executor and remove its files, or keep it for other programs of its owner.

        is_idle   no code runs in it
        """
        ...

    async def disk_bytes(self, executors: Sequence[ServedExecutor]) -> int:
        """Return how much the files of executors have on disk. Raise `DiskQuotaExceeded`."""
        ...
