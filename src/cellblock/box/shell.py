"""ShellSession: commands in one shell, which keeps its state."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import shlex
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Literal, Self

from ..aio.background_loop import LoopEnded, background_loop
from ..aio.shielded import run_to_end
from ..executors.argument_checks import shortest
from ..runtime.box_orders import BoxAnswer, RunCommand
from .arguments import Default, check_count, check_output_callback, check_seconds, check_text
from .command_spans import trace_command
from .life import BoxLife
from .output import MAX_OUTPUT_BYTES, KeptOutput, OnOutput, Piece, collect
from .process import RunningCommand
from .results import CommandResult
from .shell_marks import Mark, MarkedStream, definitions

ShellProgram = Literal["bash", "sh"]
_ARGV: Final[dict[str, tuple[str, ...]]] = {
    "bash": ("bash", "--noprofile", "--norc"),
    "sh": ("sh",),
}
_TIMED_OUT = BoxAnswer(exit=124, is_timed_out=True)


def check_program(program: str) -> ShellProgram:
    """Return the name of a shell. Raise `ValueError` for others."""
    match program:
        case "bash" | "sh":
            return program
        case _:
            raise ValueError(f"program must be 'bash' or 'sh', not {program!r:.100}.")


@dataclass(frozen=True)
class ShellOrder:
    """How a shell session starts its shell. `seconds` is the time limit of its commands."""

    program: ShellProgram
    seconds: float | None
    cwd: str
    env: tuple[tuple[str, str], ...]
    user: str


class ShellSession:
    """One shell for many commands, which keeps the folder, variables, functions and options.

    `Box.shell` makes it. It starts its shell on first use. `async with` closes it at the end, with
    its background processes. Commands run one after the other.
    """

    def __init__(self, life: BoxLife, order: ShellOrder) -> None:
        self._life, self._order = life, order
        self._lock, self._is_closed = asyncio.Lock(), False
        self._command: RunningCommand | None = None
        self._rest = dict[int, bytes]()  # what the shell has written after the last command
        self._state = ""  # the commands that bring a new shell to the state of the last one

    async def run(
        self,
        command: str,
        *,
        timeout: float | None | Default = Default.TIMEOUT,  # noqa: ASYNC109 - also ends the processes
        max_output_bytes: int | None = MAX_OUTPUT_BYTES,
        on_output: OnOutput | None = None,
    ) -> CommandResult:
        """Run a command, of one or more lines, and return its result.

        Its standard input is empty. At the time limit the shell and its processes are killed; the
        next command runs in a new shell with the folder, exported variables, functions and options
        from before. A command that ends the shell, such as `exit 3`, gives its exit code, and the
        next one runs in a new shell. Output of background processes belongs to the command that
        runs when it arrives. For the rest see `Box.exec`.
        """
        check_output_callback(on_output)
        pieces = self._pieces(command, timeout, max_output_bytes)
        return await collect(pieces, on_output)

    def run_stream(
        self,
        command: str,
        *,
        timeout: float | None | Default = Default.TIMEOUT,
        max_output_bytes: int | None = MAX_OUTPUT_BYTES,
    ) -> AsyncGenerator[Piece | CommandResult, None]:
        """Run a command as `run` does. Yield its output as it arrives, and its result last."""
        return background_loop().stream(self._pieces(command, timeout, max_output_bytes))

    def _pieces(
        self, command: str, timeout: float | None | Default, max_output_bytes: int | None
    ) -> AsyncGenerator[Piece | CommandResult, None]:
        text = check_text("command", command)
        if self._is_closed and not self._life.gone:
            raise ValueError("This shell session was closed. Create a new one with box.shell().")
        seconds = self._order.seconds if isinstance(timeout, Default) else check_seconds(timeout)
        seconds = shortest(seconds, self._life.session.limits.wall_seconds)
        pieces = self._run(text, seconds, check_count("max_output_bytes", max_output_bytes))
        argv = (*_ARGV[self._order.program], text)
        return trace_command(self._life.session, argv, pieces)

    async def restart(self) -> None:
        """End the shell with all its processes, and begin anew with the next command."""
        self._state = ""
        await background_loop().call(self._end())

    async def close(self) -> None:
        """End the shell with all its processes. `run` raises `ValueError` after that."""
        self._is_closed = True
        with contextlib.suppress(LoopEnded):  # a further cancellation must not prevent it
            await run_to_end(self.restart())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # on the background loop

    async def _end(self) -> None:
        command, self._command = self._command, None
        self._rest.clear()
        if command is not None:
            await command.end()

    async def _run(
        self, text: str, seconds: float | None, max_bytes: int | None
    ) -> AsyncGenerator[Piece | CommandResult, None]:
        async with self._life.use(), self._lock:
            begun = time.monotonic()
            deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
            kept, run = KeptOutput(max_bytes), _ShellRun(self._rest)
            try:
                command = await self._running_shell(deadline)
                async with contextlib.aclosing(run.pieces(command, text, deadline)) as pieces:
                    async for piece in pieces:
                        kept.add(*piece)
                        yield piece
            except TimeoutError:
                run.answer = _TIMED_OUT
            finally:
                if not run.is_complete:  # it ran too long, was cancelled, or has ended its shell
                    await self._end()
            for piece in run.left():
                kept.add(*piece)
                yield piece
            if run.is_complete:
                self._state, self._rest = run.state(), run.rest()
            elif run.answer is not _TIMED_OUT:
                self._state = ""
            yield kept.result(run.answer._replace(wall=time.monotonic() - begun))

    async def _running_shell(self, deadline: float | None) -> RunningCommand:
        """Return the shell. Start one in the last state if there is none."""
        if self._command is not None and not self._command.is_done:
            return self._command
        order = self._order
        start = RunCommand(
            0, _ARGV[order.program], order.cwd, order.env, reads_input=True, user=order.user
        )
        state, self._state = self._state, ""  # if it ends this shell, it is not used again
        self._command = RunningCommand(self._life, start, None, is_counted=False)
        async with asyncio.timeout_at(deadline):
            await self._command.start()
            with contextlib.suppress(BrokenPipeError):  # it has ended, which is read below
                await self._command.send(definitions(order.program).encode())
        first = _ShellRun({})
        async with contextlib.aclosing(first.pieces(self._command, state, deadline)) as pieces:
            async for _ in pieces:
                pass
        if not first.is_complete and first.answer.limit is None:
            raise FileNotFoundError(
                errno.ENOENT, "The shell does not run; try program='sh'", order.program
            )
        self._state = state
        return self._command


class _ShellRun:
    """One command in a shell, which may have written `rest` before.

    answer   how the shell has ended, or the command
    """

    def __init__(self, rest: Mapping[int, bytes]) -> None:
        self.answer = BoxAnswer()
        self._mark, self._before = Mark(), rest
        self._streams = {1: MarkedStream(self._mark.whole, 2), 2: MarkedStream(self._mark.whole, 3)}

    @property
    def is_complete(self) -> bool:
        """Whether the command has ended, and the shell goes on."""
        return all(stream.is_complete for stream in self._streams.values())

    async def pieces(
        self, command: RunningCommand, text: str, deadline: float | None
    ) -> AsyncGenerator[Piece, None]:
        """Run `text` and yield its output. Raise `TimeoutError`."""
        for stream, data in self._before.items():
            if output := self._streams[stream].feed(data):
                yield stream, output
        with contextlib.suppress(BrokenPipeError):  # the shell has ended, which is read below
            async with asyncio.timeout_at(deadline):
                await command.send(self._mark.script(text).encode(errors="surrogateescape"))
        while not self.is_complete:
            async with asyncio.timeout_at(deadline):
                piece = await command.next_piece()
            if piece is None:
                self.answer = command.answer or BoxAnswer()
                return
            if output := self._streams[piece[0]].feed(piece[1]):
                yield piece[0], output
        self.answer = BoxAnswer(exit=int(self._streams[1].parts[1]))

    def left(self) -> list[Piece]:
        """Return the output of a command that has not ended as it should."""
        return [] if self.is_complete else [*self.rest().items()]

    def rest(self) -> dict[int, bytes]:
        """Return what came after the last mark, or was held back."""
        rests = {number: stream.take_rest() for number, stream in self._streams.items()}
        return {number: data for number, data in rests.items() if data}

    def state(self) -> str:
        """Return the commands that bring a new shell to the present state."""
        folder, others = (
            part.decode(errors="surrogateescape") for part in self._streams[2].parts[1:]
        )
        return f"cd -- {shlex.quote(folder)}\n{others}"
