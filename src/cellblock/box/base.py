"""Box: a live session with commands, processes and files, wherever it is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from ..aio.background_loop import LoopEnded, background_loop
from ..aio.shielded import run_to_end
from ..blocks import CodeBlock
from ..cancellation import Token
from ..errors import CheckpointError
from ..events import Event
from ..executors.argument_checks import check_bool, check_token, shortest
from ..executors.run_options import RunOptions
from ..executors.session.base import SessionExecutor
from ..executors.session.checkpoint import Checkpoint
from ..results import SessionCodeResult
from ..runtime import protocol
from ..runtime.box_orders import BoxAnswer, CommandProcess, EndCommands, ListCommands, RunCommand
from ..runtime.packets import decode_fields
from ..sandbox.guarantees import Guarantee
from .arguments import (
    Default,
    check_argv,
    check_count,
    check_data,
    check_environment,
    check_folder_path,
    check_output_callback,
    check_seconds,
    check_size,
    check_user,
)
from .command_spans import command_span, trace_command
from .files import Files
from .kept.address import new_box_id
from .kept.place import KeptPlace, require_kept
from .life import BoxLife, check_box_answer
from .output import MAX_OUTPUT_BYTES, STREAMS, KeptOutput, OnOutput, Piece, collect
from .process import Process, RunningCommand
from .results import CommandResult
from .shell import ShellOrder, ShellProgram, ShellSession, check_program
from .transfers import pieces_of

T = TypeVar("T")


class Box:
    """Commands, processes, files and a live Python in one sandbox, for as long as a task takes.

    It starts itself on first use; `async with` starts and closes it. After `close`, and if its
    server or container is lost, every method raises `BoxGone`. Many tasks, event loops and threads
    can use it, and its commands run at the same time. Wrong arguments raise `ValueError` before
    anything runs. Homes share these parameters:

    timeout        seconds that a command or a block may run, if a call names no other. None means
                   no limit
    work_dir       the folder on this machine that commands start in; None means a temporary one
    idle_seconds   close the box when nothing has run in it, and nothing was asked, for so long

    id        its name, which no other box has
    files     its files
    session   its live Python: `get`, `set`, `variables` and `complete`
    timeout   see above
    """

    def __init__(self, session: SessionExecutor, idle_seconds: float | None) -> None:
        session.place.loss_advice = ""
        self._take(BoxLife(session, check_seconds(idle_seconds, "idle_seconds")))

    def _take(self, life: BoxLife) -> None:
        place = life.session.place
        self.id = place.box_id if isinstance(place, KeptPlace) else new_box_id()
        self.session, self._life, self.files = life.session, life, Files(life)
        self.timeout = life.session.timeout
        self.session.session_id = self.session.session_id or self.id

    def __repr__(self) -> str:
        state = "closed" if self.closed else repr(self.session.place)
        return f"<{type(self).__name__} {self.id} {state}>"

    # its life

    async def start(self) -> None:
        """Start the box. Do nothing if it is started. Raise as starting an executor does."""
        await background_loop().call(self._life.start())

    async def close(self) -> None:
        """Kill everything in the box and clean up. Do nothing if it is closed."""
        if isinstance(place := self.session.place, KeptPlace):
            place.detaches = False
        with contextlib.suppress(LoopEnded):
            await background_loop().call(self._life.close())

    @property
    def closed(self) -> bool:
        """Whether the box cannot be used any more."""
        return self._life.is_gone

    def ref(self) -> str:
        """Return a text by which another process of this user can attach to the box, if it is kept.

        See `Sandbox`. The text is no secret. Raise `BackendError` if the box is not kept, and
        `ExecutorStopped` before its start.
        """
        return require_kept(self.session.place).address.ref

    async def detach(self) -> None:
        """Leave a box alive that is kept, and use it no more here. See `Sandbox`.

        What this process runs in it is ended as if its tasks were cancelled. Raise `BackendError`
        if the box is not kept.
        """
        require_kept(self.session.place).detaches = True
        if not self._life.gone:
            self._life.advice = "Attach to it by its ref."
        with contextlib.suppress(LoopEnded):
            await background_loop().call(self._life.close("This process has left the box."))

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await (self.detach() if isinstance(self.session.place, KeptPlace) else self.close())

    @property
    def work_dir(self) -> Path:
        """The work folder on this machine."""
        return self.session.work_dir

    @property
    def inner_work_dir(self) -> str:
        """Where commands start, as they see it: the work folder, or what the box's image says."""
        place = self.session.place
        image_says = "" if place.root is None else place.root.work_dir
        return image_says or place.current_folder

    def guarantees(self) -> tuple[Guarantee, ...]:
        """Return what is guaranteed, and by which mechanism. The first call can block shortly."""
        return self.session.guarantees()

    # commands

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None | Default = Default.TIMEOUT,  # noqa: ASYNC109 - also ends the processes
        user: str | int | None = None,
        merge_stderr: bool = False,
        max_output_bytes: int | None = MAX_OUTPUT_BYTES,
        on_output: OnOutput | None = None,
    ) -> CommandResult:
        """Run a command and return its result, whatever it did.

        command            a text that `sh` runs, or a program with its arguments as they are
        cwd                its current folder; a relative one begins at the work folder
        env                variables that are added to those of the box
        stdin              its input; none by default, which is `/dev/null`
        timeout            seconds until it is killed; by default that of the box
        user               who runs it: a name or a user ID
        merge_stderr       what it writes to standard error goes to standard output, in order
        max_output_bytes   how much of each stream is kept; it goes on beyond that
        on_output          called with 1 or 2 for the stream, and each piece as it arrives

        It returns when the program has ended, even if a child still holds its output. Such a
        child lives on. At the time limit, and when the awaiting task is cancelled, the program
        and its children are killed, but not those in a session of their own (`setsid`).

        Raise `PermissionError` if the program may not be executed, `FileNotFoundError` or
        `NotADirectoryError` if `cwd` cannot be entered, `OSError` with `E2BIG` for too many
        arguments, and `UserUnsupported`.
        """
        check_output_callback(on_output)
        order = self._order(command, cwd, env, timeout, user, merge_stderr, max_output_bytes)
        data = check_data("stdin", stdin)
        run = self._run if on_output is None else self._stream
        pieces = trace_command(self.session, order.argv, run(order, data, max_output_bytes))
        return await collect(pieces, on_output)

    def exec_stream(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None | Default = Default.TIMEOUT,
        user: str | int | None = None,
        merge_stderr: bool = False,
        max_output_bytes: int | None = MAX_OUTPUT_BYTES,
    ) -> AsyncGenerator[Piece | CommandResult, None]:
        """Run a command as `exec` does. Yield its output as it arrives, and its result last.

        Closing the generator early kills the command.
        """
        order = self._order(command, cwd, env, timeout, user, merge_stderr, max_output_bytes)
        pieces = self._stream(order, check_data("stdin", stdin), max_output_bytes)
        return background_loop().stream(trace_command(self.session, order.argv, pieces))

    async def spawn(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - also ends the processes
        user: str | int | None = None,
        merge_stderr: bool = False,
        max_output_bytes: int | None = None,
    ) -> Process:
        """Start a command with live input, and return its process, which runs on.

        It has no time limit by default. With `max_output_bytes`, it never waits for its output to
        be read. For the rest see `exec`.
        """
        order = self._order(command, cwd, env, timeout, user, merge_stderr, max_output_bytes)
        started = list[RunningCommand]()

        async def start() -> Process:
            with command_span("cellblock.spawn", self.session, order.argv):
                await self._life.start()
                reading = order._replace(reads_input=True)
                live = RunningCommand(self._life, reading, max_output_bytes)
                await live.start()
            started.append(live)
            return Process(live)

        try:
            return await background_loop().call(start())
        except asyncio.CancelledError:
            for live in started:  # it came after the start: the caller has no process to end
                await run_to_end(background_loop().call(live.end()))
            raise

    def shell(
        self,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        program: ShellProgram = "bash",
    ) -> ShellSession:
        """Return a shell session, whose commands share the state of one shell."""
        order = ShellOrder(
            check_program(program),
            self.timeout,
            check_folder_path(cwd),
            check_environment(env),
            check_user(user),
        )
        return ShellSession(self._life, order)

    async def commands(self) -> list[CommandProcess]:
        """Return the processes of commands that run, and those that commands have left."""
        answer, _ = await background_loop().call(self._life.ask(ListCommands(0)))
        return [*(answer.processes or ())]

    def _order(
        self,
        command: object,
        cwd: object,
        env: object,
        timeout: object,
        user: object,
        merge_stderr: object,
        max_output_bytes: object,
    ) -> RunCommand:
        seconds = self.timeout if isinstance(timeout, Default) else check_seconds(timeout)
        return check_size(
            RunCommand(
                0,
                check_argv(command),
                check_folder_path(cwd),
                check_environment(env),
                seconds=shortest(seconds, self.session.limits.wall_seconds),
                user=check_user(user),
                is_merged=check_bool("merge_stderr", merge_stderr),
                output_bytes=check_count("max_output_bytes", max_output_bytes),
            )
        )

    async def _run(
        self, order: RunCommand, data: bytes | None, max_bytes: int | None
    ) -> AsyncGenerator[Piece | CommandResult, None]:
        kept, answer, pieces = KeptOutput(max_bytes), BoxAnswer(), None
        if data is not None:
            order, pieces = order._replace(reads_input=True), pieces_of(data)
        async with (
            self._life.use() as link,
            contextlib.aclosing(link.frames(order, pieces)) as frames,
        ):
            async for frame in frames:
                if stream := STREAMS.get(frame.kind):
                    kept.add(stream, frame.payload)
                    yield stream, frame.payload
                elif frame.kind == protocol.BOX_REPLY:
                    answer = decode_fields(frame, BoxAnswer)
        check_box_answer(answer)
        yield kept.result(answer)

    async def _stream(
        self, order: RunCommand, data: bytes | None, max_bytes: int | None
    ) -> AsyncGenerator[Piece | CommandResult, None]:
        """Run a command as `_run` does, for a reader who may be slow."""
        await self._life.start()
        order = order._replace(reads_input=data is not None)
        command, kept = RunningCommand(self._life, order, None, data=data), KeptOutput(max_bytes)
        try:
            while (piece := await command.next_piece()) is not None:
                kept.add(*piece)
                yield piece
            answer = command.answer or BoxAnswer()
        finally:
            await command.end()
        check_box_answer(answer)
        yield kept.result(answer)

    # the live Python

    async def run_code(
        self,
        code: str,
        language: str = "python",
        *,
        timeout: float | None | Default = Default.TIMEOUT,  # noqa: ASYNC109 - also ends the processes
        token: Token | None = None,
    ) -> SessionCodeResult:
        """Run a block in the live Python, or a program in another language. See `CodeExecutor`."""
        blocks, options = self._block(code, language, timeout, token)

        async def run() -> SessionCodeResult:
            async with self._life.use():
                result = await self.session.run_blocks(blocks, token, options)
            assert isinstance(result, SessionCodeResult)
            return result

        return await background_loop().call(run())

    def stream_code(
        self,
        code: str,
        language: str = "python",
        *,
        timeout: float | None | Default = Default.TIMEOUT,
        token: Token | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Run a block as `run_code` does, and yield its events as they happen."""
        blocks, options = self._block(code, language, timeout, token)

        async def run() -> AsyncGenerator[Event, None]:
            async with self._life.use():
                events = self.session.stream_blocks(blocks, token, options)
                async with contextlib.aclosing(events):
                    async for event in events:
                        yield event

        return background_loop().stream(run())

    def _block(
        self, code: str, language: str, timeout: object, token: Token | None
    ) -> tuple[list[CodeBlock], RunOptions]:
        check_token(token)
        seconds = self.timeout if isinstance(timeout, Default) else check_seconds(timeout)
        return [CodeBlock(code, language)], RunOptions(run_seconds=seconds, replaces_timeout=True)

    # copies

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """The current checkpoints, oldest first."""
        return self.session.checkpoints

    async def checkpoint(
        self,
        name: str | None = None,
        *,
        end_commands: bool = False,
        lifetime_seconds: float | None = None,
        replace: bool = False,
        max_copied_bytes: int | None = None,
    ) -> Checkpoint:
        """Freeze a copy of the live Python and the work folder. See `SessionExecutor.checkpoint`.

        Raise `CheckpointError` if processes of commands run; `end_commands` kills them first.
        """
        making = partial(
            self.session.checkpoint,
            name,
            lifetime_seconds=lifetime_seconds,
            replace=replace,
            max_copied_bytes=max_copied_bytes,
        )
        return await background_loop().call(self._copy(making, end_commands))

    async def restore(self, checkpoint: Checkpoint | str, *, end_commands: bool = False) -> None:
        """Bring the live Python and the work folder back to a checkpoint, as `checkpoint` does."""
        restoring = partial(self.session.restore, checkpoint)
        await background_loop().call(self._copy(restoring, end_commands))

    async def drop(self, checkpoint: Checkpoint | str) -> None:
        """Delete a checkpoint. See `SessionExecutor.drop`."""

        async def drop() -> None:
            async with self._life.use():
                await self.session.drop(checkpoint)

        await background_loop().call(drop())

    async def fork(
        self,
        count: int = 1,
        *,
        checkpoint: Checkpoint | str | None = None,
        end_commands: bool = False,
        max_copied_bytes: int | None = None,
    ) -> list[Self]:
        """Create `count` boxes from the present state, or from a checkpoint.

        Each is closed by itself. See `SessionExecutor.fork`, and `checkpoint` for commands that
        run, which do not matter for a fork of a checkpoint.
        """
        forking = partial(
            self.session.fork, count, checkpoint=checkpoint, max_copied_bytes=max_copied_bytes
        )

        async def fork() -> list[Self]:
            branches = await self._copy(forking, end_commands, is_frozen=checkpoint is not None)
            return [self._branch(branch) for branch in branches]

        return await background_loop().call(fork())

    def _branch(self, session: SessionExecutor) -> Self:
        branch = object.__new__(type(self))
        vars(branch).update(vars(self))  # also what the constructor of a subclass has set
        branch._take(self._life.copy_for(session))
        return branch

    async def _copy(
        self,
        copying: Callable[[], Awaitable[T]],
        end_commands: object,
        *,
        is_frozen: bool = False,
    ) -> T:
        """Await `copying`, when no command runs that could change the files meanwhile."""
        check_bool("end_commands", end_commands)
        async with self._life.use():
            if end_commands:
                await self._life.ask(EndCommands(0))
            elif not is_frozen:
                answer, _ = await self._life.ask(ListCommands(0))
                if running := answer.processes:
                    names = ", ".join(f"{each.text!r:.60} ({each.pid})" for each in running[:5])
                    raise CheckpointError(
                        f"Commands run in the box: {names}. End them, and shells that are open, "
                        "or copy with end_commands."
                    )
            return await copying()


def life_of(box: Box) -> BoxLife:
    """Return what keeps a box alive, for the process that has it for others."""
    return box._life  # pyright: ignore[reportPrivateUsage] - its own module
