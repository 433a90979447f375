"""SessionExecutor: run blocks in one live interpreter, in any place."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import secrets
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ...aio.background_loop import background_loop
from ...aio.shielded import run_in_thread, run_to_end
from ...blocks import CodeBlock, CodeBlockLike
from ...cancellation import Token
from ...errors import CheckpointError, SessionError, UnsupportedValue
from ...events import Event
from ...results import CodeResult, ResultBuilder, SessionCodeResult
from ...runtime import values
from ...runtime.messages import Answer, RunCode, RunProgram, RunTerms
from ...runtime.protocol import Frame
from ...runtime.session_orders import (
    CompleteCode,
    DropCheckpoint,
    FlushFiles,
    GetVariable,
    KillProcess,
    ListVariables,
    MakeCheckpoint,
    MeasureCpu,
    ResumeCheckpoint,
    SessionOrder,
    SetVariable,
)
from ...tracing import Attributes, span
from ..argument_checks import shortest
from ..base import CodeExecutor, RunBlock, validate_blocks
from ..places.base import OnInput, PlaceProperties
from ..run_options import RunOptions
from ..settings import Config, to_config
from ..workspace import snapshot
from ..workspace.full_disk import report_full_disk
from .answers import check_answer, required
from .checkpoint import Checkpoint
from .fork_request import ForkRequest
from .live_python import LivePython
from .settings import SessionSettings
from .state import SessionState

if TYPE_CHECKING:
    from .docker_place import DockerSessionPlace
    from .sandbox_place import SandboxSessionPlace

_DEFAULT_OPTIONS = RunOptions()


@dataclasses.dataclass(frozen=True)
class Variable:
    """A variable of a session. `size_bytes` is the size of the object without what it refers to."""

    name: str
    type: str
    size_bytes: int
    repr: str


class SessionExecutor(PlaceProperties, CodeExecutor):
    """Base class of the session executors. They share these parameters:

    checkpoints      keep a frozen copy of the session before each block, and restore it if the
                     block kills the session
    keep_processes   keep processes that a block started running for later blocks, as a notebook
                     does. Otherwise they are killed when the block ends
    input_callback   called with the prompt to answer `input()` and `getpass`. Without it they raise
                     an error immediately. The prompt is a string whose `hidden` is True for
                     `getpass`

    For the other parameters see `CommandLineExecutor`.
    """

    is_live: ClassVar[bool] = True
    # Options of runs that name none, set before the start by what a session is a part of.
    default_options = RunOptions()

    if TYPE_CHECKING:

        async def execute_code_blocks(
            self, code_blocks: Sequence[CodeBlockLike], cancellation_token: Token | None = None
        ) -> SessionCodeResult: ...

        @property
        def place(self) -> SandboxSessionPlace | DockerSessionPlace: ...

    def __init__(
        self, place: SandboxSessionPlace | DockerSessionPlace, live: SessionSettings
    ) -> None:
        self._live = live
        super().__init__(place)

    def _init_state(self) -> None:
        super()._init_state()
        self.session_id = ""  # a copy is another session
        self._python = LivePython(self.place, self._live)

    @property
    def _state(self) -> SessionState:
        return self.place.session

    def span_attributes(self) -> Attributes:
        """See `CodeExecutor`. A session that nothing has named gets a name here."""
        self.session_id = self.session_id or f"session-{secrets.token_hex(8)}"
        return super().span_attributes()

    async def _open(self) -> None:
        has_functions = bool(self._settings.functions.functions)
        await self.place.open(self._python.load_functions if has_functions else None)

    async def _close(self, *, restarting: bool) -> None:
        await self.place.close(restarting=restarting)

    def _start_events(self) -> AsyncGenerator[Event, None]:
        return self.place.start_events(self._start_for_use)

    def _to_config(self) -> Config:
        return {**self.place.to_config(), **to_config(self._live)}

    # blocks

    def _run_block(
        self, number: int, block: CodeBlock, token: Token | None
    ) -> AsyncGenerator[Event, None]:
        return self._python.run(number, block, token, self.default_options)

    def _with_options(self, options: RunOptions) -> RunBlock:
        return lambda number, block, token: self._python.run(number, block, token, options)

    def run_blocks(
        self, blocks: Sequence[CodeBlockLike], token: Token | None, options: RunOptions
    ) -> Coroutine[Any, Any, CodeResult]:
        """Run blocks as `execute_code_blocks` does, with `options`."""
        events = self._events(validate_blocks(blocks), token, self._with_options(options))
        return background_loop().call(self._collect(events))

    def stream_blocks(
        self, blocks: Sequence[CodeBlockLike], token: Token | None, options: RunOptions
    ) -> AsyncGenerator[Event, None]:
        """Run blocks as `execute_stream` does, with `options`."""
        events = self._events(validate_blocks(blocks), token, self._with_options(options))
        return background_loop().stream(events)

    def _build_result(self, builder: ResultBuilder) -> SessionCodeResult:
        return builder.session_result()

    # requests

    async def relay(
        self,
        order: SessionOrder,
        token: Token | None,
        *,
        value: bytes = b"",
        on_input: OnInput | None = None,
    ) -> AsyncGenerator[Frame, None]:
        """Carry out an order of another process after those before it. Yield its frames.

        It belongs to the background loop. The session and folders that the order names are replaced
        by those of this session. Raise as `Connection.run` does.
        """
        place, began = self.place, time.monotonic()
        if isinstance(order, RunProgram):
            async with contextlib.aclosing(
                place.frames(place.program_request(order.request), token)
            ) as frames:
                async for frame in frames:
                    yield frame
            return
        async with self._python.lock:
            order = order._replace(session=place.session.number)
            if isinstance(order, RunCode):
                waited = order.terms.waited + time.monotonic() - began
                order = order._replace(terms=order.terms._replace(waited=waited))
            connection = place.require_connection()
            async with contextlib.aclosing(
                connection.run(order, token, value=value, on_input=on_input)
            ) as frames:
                async for frame in frames:
                    yield frame
            place.session.block_count += isinstance(order, RunCode)

    async def _query(
        self,
        make: Callable[[int, RunTerms], SessionOrder],
        value: bytes = b"",
        options: RunOptions = _DEFAULT_OPTIONS,
    ) -> tuple[Answer, bytes]:
        return await background_loop().call(self._start_and_query(make, value, options))

    async def _start_and_query(
        self, make: Callable[[int, RunTerms], SessionOrder], value: bytes, options: RunOptions
    ) -> tuple[Answer, bytes]:
        if not self._is_open:
            await self._start_for_use()
        async with self._python.lock:
            return await self._python.query_locked(make, value, options)

    # variables

    async def get(self, name: str) -> Any:
        """Return the value of the variable `name`.

        It is a JSON value, bytes, or a `pyarrow.Table` for a table (Arrow, pandas, polars). Raise
        `KeyError` if there is no such variable, and `SessionError` if its type is not supported.
        """
        answer, data = await self._query(partial(GetVariable, name=name))
        if answer.missing:
            raise KeyError(name)
        kind = required(check_answer(answer).kind, "kind")
        try:
            return values.decode(kind, data)
        except values.UnsupportedValueError as error:
            raise UnsupportedValue(str(error)) from None
        except Exception as error:  # code can forge the data, and a parser can raise anything
            raise SessionError(f"The value of {name!r} cannot be decoded: {error}") from error

    async def set(self, name: str, value: Any) -> None:
        """Set the variable `name` to `value`: a JSON value, bytes, an array, a series or a table.

        A pandas table becomes a pandas table in the session, an array or a series a list. Raise
        `UnsupportedValue`, which is also a `TypeError`, for other values; it says what to pass
        instead. Raise `ValueError` if `name` is not a valid identifier.
        """
        if not isinstance(name, str) or not name.isidentifier():  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            raise ValueError(f"{name!r} is not a valid variable name. Use a Python identifier.")
        try:
            kind, data = values.encode(value)
        except values.UnsupportedValueError as error:
            raise UnsupportedValue(str(error)) from None
        order = partial(
            SetVariable,
            name=name,
            kind=kind,
            size=len(data),
            rollback_checkpoints=self._live.checkpoints,
        )
        answer, _ = await self._query(order, data)
        check_answer(answer)

    async def variables(self) -> list[Variable]:
        """Return the variables that blocks have created, sorted by name."""
        answer, _ = await self._query(ListVariables)
        return [Variable(*entry) for entry in required(check_answer(answer).variables, "variables")]

    async def cpu_seconds(self) -> float | None:
        """Return the CPU time of all processes of the session since its start, also of commands.

        Return None before the start, and where no control group counts it.
        """
        connection = self.place.connection
        if connection is None or not connection.is_open:
            return None
        order = MeasureCpu(self._state.number)
        return (await background_loop().call(connection.request(order)))[0].cpu

    async def complete(
        self, code: str, cursor: int | None = None, options: RunOptions | None = None
    ) -> tuple[int, list[str]]:
        """Return what Tab offers in `code` at index `cursor` (None: at its end).

        The result is the index where the text to replace starts, and its replacements: names,
        attributes, keys and columns of the session's variables, and files. It can run user code:
        raise `SessionError` at a limit of `options`.
        """
        place, options = len(code) if cursor is None else cursor, options or RunOptions()
        make = partial(CompleteCode, code=code, cursor=place)
        answer, _ = await self._query(make, options=options)
        check_answer(answer)
        start, matches = required(answer.start, "start"), required(answer.matches, "matches")
        return min(max(start, 0), place), list(matches)

    # checkpoints and forks

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """The current checkpoints, oldest first."""
        return tuple(self._state.checkpoints.values())

    async def checkpoint(
        self,
        name: str | None = None,
        *,
        lifetime_seconds: float | None = None,
        replace: bool = False,
        max_copied_bytes: int | None = None,
    ) -> Checkpoint:
        """Create a frozen copy of the session's memory and work folder.

        `restore`, `drop` and `fork` also take its `name`. `None` means the first free number. With
        `replace`, it takes the place of a checkpoint with this name, which is kept if this fails.

        It exists until it is dropped, the session stops, or `lifetime_seconds` have passed. It
        copies at most `max_copied_bytes` of files, if that is less than `Limits.written_bytes`.
        Raise
        `CheckpointError` if `Limits.checkpoints` would be exceeded, or if the session has something
        that cannot be copied: running threads, child processes, network connections, terminals,
        GPU contexts or shared memory. The error names it.
        Raise `ValueError` if the session has a checkpoint with this name and `replace` is false,
        and `WorkspaceError` if the disk is full.
        """
        with (
            span("cellblock.checkpoint", self.span_attributes()),
            report_full_disk("The checkpoint cannot be saved"),
        ):
            return await background_loop().call(
                self._checkpoint(name, lifetime_seconds, replace, max_copied_bytes)
            )

    async def _checkpoint(
        self,
        given_name: str | None,
        lifetime: float | None,
        replace: bool,
        max_copied_bytes: int | None,
    ) -> Checkpoint:
        if not self._is_open:
            await self._start_for_use()
        async with self._python.lock:
            return await self._checkpoint_locked(given_name, lifetime, replace, max_copied_bytes)

    async def _checkpoint_locked(
        self,
        given_name: str | None,
        lifetime: float | None,
        replace: bool,
        max_copied_bytes: int | None,
    ) -> Checkpoint:
        began, name = time.monotonic(), self._state.new_checkpoint_name(given_name, replace)
        limit, others = self.limits.checkpoints, self._state.checkpoints.keys() - {name}
        if limit is not None and len(others) >= limit:
            raise CheckpointError(
                f"The session already has {limit} checkpoints, its limit of checkpoints. "
                "Delete one first."
            )
        workspace, folder = self.place.workspace, self.place.checkpoint_dir()
        key = uuid.uuid4().hex
        previous, taken = self._state.last_snapshot(), list[snapshot.Snapshot]()

        def take_snapshot() -> None:
            room = shortest(self.limits.written_bytes, max_copied_bytes)
            taken.append(snapshot.take_snapshot(workspace.path, previous, folder, room))

        try:
            order = partial(MakeCheckpoint, key=key, rollback_checkpoints=self._live.checkpoints)
            answer, _ = await self._python.query_locked(order)
            check_answer(answer, CheckpointError)
            await self.place.prepare_copy()
            await run_in_thread(take_snapshot)
        except BaseException:
            await self._discard(key, taken)
            raise
        checkpoint = Checkpoint.create(
            name, key, self._state.block_count, began, lifetime, taken[0]
        )
        replaced = self._state.checkpoints.pop(name, None)
        self._state.checkpoints[name] = checkpoint
        if lifetime is not None:
            asyncio.get_running_loop().call_later(
                lifetime, lambda: asyncio.ensure_future(self._drop(checkpoint))
            )
        if replaced is not None:
            await self._discard(replaced.key, [replaced.snapshot])
        return checkpoint

    async def drop(self, checkpoint: Checkpoint | str) -> None:
        """Delete a checkpoint. Do nothing if it is already deleted.

        Raise `CheckpointError` if there is no checkpoint with the name `checkpoint`.
        """
        await background_loop().call(self._drop(self._state.find_checkpoint(checkpoint)))

    async def _drop(self, checkpoint: Checkpoint) -> None:
        async with self._python.lock:
            if self._state.checkpoints.get(checkpoint.name) is not checkpoint:
                return  # a later one can have the same name
            await self._drop_locked(checkpoint)

    async def _drop_locked(self, checkpoint: Checkpoint) -> None:
        self._state.checkpoints.pop(checkpoint.name, None)  # `stop` may have been faster
        if self.place.connection is not None:
            await self._discard(checkpoint.key, [checkpoint.snapshot])

    async def _discard(self, key: str, snapshots: Iterable[snapshot.Snapshot]) -> None:
        """End a checkpoint's process, if there is one, and delete its snapshots."""
        try:
            await self._python.query_locked(lambda session, _: DropCheckpoint(session, key))
        finally:
            for taken in snapshots:
                await asyncio.to_thread(taken.remove)

    async def restore(self, checkpoint: Checkpoint | str) -> None:
        """Restore the variables and the work folder to their state at `checkpoint`.

        A checkpoint can be restored several times. Raise `CheckpointError` if it was dropped, has
        expired or belongs to another session, and `WorkspaceError` if the disk is full. Then the
        variables are restored, but not all files.
        """
        with (
            span("cellblock.restore", self.span_attributes()),
            report_full_disk("Not all files of the checkpoint could be restored"),
        ):
            await background_loop().call(self._restore(checkpoint))

    async def _restore(self, given: Checkpoint | str) -> None:
        async with self._python.lock:
            # To the end, even if it is cancelled: between the steps there is no interpreter.
            await run_to_end(self._restore_locked(self._state.require_checkpoint(given)))

    async def _restore_locked(self, checkpoint: Checkpoint) -> None:
        kill = partial(KillProcess, key=checkpoint.key)
        check_answer((await self._python.query_locked(kill))[0], CheckpointError)
        try:
            await self.place.prepare_copy()
            await asyncio.to_thread(
                snapshot.restore_snapshot,
                checkpoint.snapshot,
                self.place.workspace.path,
                read_only=self.place.workspace.read_only,
            )
        except Exception:  # such as a full disk; the session still has to be usable
            await self._resume(checkpoint)
            raise
        check_answer(await self._resume(checkpoint), CheckpointError)

    async def _resume(self, checkpoint: Checkpoint) -> Answer:
        """Replace the killed interpreter by that of the checkpoint, and return the answer."""
        answer, _ = await self._python.query_locked(
            lambda session, _: ResumeCheckpoint(session, checkpoint.key, self._live.checkpoints)
        )
        return answer

    async def fork(
        self,
        count: int = 1,
        *,
        checkpoint: Checkpoint | str | None = None,
        max_copied_bytes: int | None = None,
    ) -> list[Self]:
        """Create `count` independent sessions that start from the current state or `checkpoint`.

        They share memory until they modify it. Each has its own temporary work folder and its own
        `stop`. The random number generators of `random`, numpy and torch are reseeded in each.
        `max_copied_bytes` is as for `checkpoint`, for each of them.
        Raise `CheckpointError` and `WorkspaceError` as `checkpoint` does, and `CheckpointError` if
        the session is the result of too many nested forks for the kernel (about 30).
        """
        if count < 1:
            raise ValueError(f"count must be greater than or equal to 1, not {count!r}.")
        with (
            span("cellblock.fork", {**self.span_attributes(), "cellblock.fork.count": count}),
            report_full_disk("The session cannot be copied"),
        ):
            return await background_loop().call(self._fork(count, checkpoint, max_copied_bytes))

    async def _fork(
        self, count: int, given: Checkpoint | str | None, max_copied_bytes: int | None
    ) -> list[Self]:
        room = shortest(self.limits.written_bytes, max_copied_bytes)
        if not self._is_open:
            await self._start_for_use()
        async with self._python.lock:
            checkpoint = None if given is None else self._state.require_checkpoint(given)
            temporary: Checkpoint | None = None
            if checkpoint is None:  # the copy must contain the buffered data of open files
                answer = check_answer((await self._python.query_locked(FlushFiles))[0])
                if answer.by_value:  # only a checkpoint sends its values to branches
                    checkpoint = temporary = await self._checkpoint_locked(None, None, False, room)
            try:
                places = await self.place.fork(
                    ForkRequest(count, checkpoint, room, self._live.checkpoints)
                )
            except FileNotFoundError:  # `stop` has removed a folder that was being copied
                self.place.require_connection()
                raise
            finally:
                if temporary is not None:
                    await self._drop_locked(temporary)
        for place in places:
            blocks = self._state.block_count if checkpoint is None else checkpoint.blocks
            place.session.block_count = blocks
        return [self._branch(place) for place in places]

    def _branch(self, place: SandboxSessionPlace | DockerSessionPlace) -> Self:
        """Return a started executor with the same settings in another place."""
        branch = object.__new__(type(self))
        vars(branch).update(vars(self))  # also what the constructor of a subclass has set
        vars(branch).update(_place=place, _settings=place.settings)
        branch._init_state()
        branch._mark_open()
        return branch
