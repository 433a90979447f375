"""SandboxSessionCodeExecutor: a live session behind walls, which its own code cannot lose."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import secrets
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Self

from ..blocks import CodeBlock, file_name, silence_pip
from ..cancellation import CancellationToken
from ..cell import values
from ..cell.folders import remove_tree
from ..engine import engine
from ..errors import CheckpointError, FunctionError, SessionError
from ..events import Display, Ended, Event, FileMade, Output, Started
from ..functions import Function
from ..languages import Action, Language
from ..limits import SANDBOX_LIMITS, Limits
from ..places.base import Connection
from ..places.sandbox import WORK_DIR, own_mounts
from ..policy import Policy
from ..result import Folder, SessionCodeResult
from . import snapshot
from .checkpoints import Checkpoint
from .displays import DisplayFiles
from .output import Frames
from .sandbox import SandboxCommandLineCodeExecutor
from .session_server import SandboxSessionServer
from .workspace import Workspace

InputCallback = Callable[[str], str] | Callable[[str], Awaitable[str]]


@dataclasses.dataclass(frozen=True)
class Variable:
    """A variable of a session. `size_bytes` is that of the object itself, without what it refers to."""

    name: str
    type: str
    size_bytes: int
    repr: str


class SandboxSessionCodeExecutor(SandboxCommandLineCodeExecutor):
    """Run Python blocks in one live interpreter in a sandbox: a notebook's semantics, and a session that cannot be lost.

    Variables, imports and files stay from block to block. What a block does to its process, from `os._exit` to running out of
    memory, costs that block alone: the session goes on with the variables of before it, and the result says so
    (`session_restored`, `notice`). Blocks in other languages are fresh processes over the same work folder.

    checkpoints      keep a frozen copy of the session before each block, to go back to when the block ends it
    keep_processes   let processes that a block started live on for the next ones, as in a notebook; else they end with it
    input_callback   answers `input()`, given the prompt; without it `input()` fails at once
    server           a `SandboxSessionServer` that runs; `None`: one of its own. With one, `packages`, `limits`, `policy`, `preload`
                     and `virtual_env_context` are the server's and must not be given

    For the other parameters see `SandboxCommandLineCodeExecutor`. Results are `SessionCodeResult`s. Starting raises
    `SandboxUnavailable` where this machine does not allow the sandbox, and `PlaceError` when the blocks' Python has no IPython.
    """

    is_live: ClassVar[bool] = True

    def __init__(
        self,
        timeout: float = 60,
        work_dir: str | os.PathLike[str] | None = None,
        functions: Sequence[Function] = (),
        functions_module: str = "functions",
        cleanup_temp_files: bool = True,
        virtual_env_context: SimpleNamespace | None = None,
        *,
        packages: Sequence[str] = (),
        limits: Limits = SANDBOX_LIMITS,
        policy: Policy | None = None,
        preload: Sequence[str] = (),
        checkpoints: bool = True,
        keep_processes: bool = False,
        input_callback: InputCallback | None = None,
        server: SandboxSessionServer | None = None,
        execution_policies: Mapping[str, Action] | None = None,
        save_output: bool = False,
    ) -> None:
        if server is not None:
            if packages or policy is not None or preload or virtual_env_context or limits is not SANDBOX_LIMITS:
                raise ValueError(
                    "packages, limits, policy, preload and virtual_env_context are the server's: give them to it."
                )
            limits, policy = server.limits, server.policy
        super().__init__(
            timeout,
            work_dir,
            functions,
            functions_module,
            cleanup_temp_files,
            virtual_env_context,
            packages=packages,
            limits=limits,
            policy=policy,
            preload=preload,
            execution_policies=execution_policies,
            save_output=save_output,
        )
        self._keeps_copies, self._keep_processes = checkpoints, keep_processes
        self._input_callback = input_callback
        self._given_server = server
        self._server: SandboxSessionServer | None = None
        self._number = 0
        self._scratch: Path | None = None
        self._marks: dict[str, Checkpoint] = {}
        self._blocks = 0
        # One interpreter does one thing at a time; whoever comes meanwhile waits.
        self._turn = asyncio.Lock()

    # open and close

    async def _open(self) -> None:
        self._workspace = Workspace(self.work_dir, None if self._given_work_dir is None else str(self._given_work_dir))
        server = self._given_server or SandboxSessionServer.private(
            self._packages, self._limits, self._policy, self._preload, self._virtual_env_context
        )
        connection = await server.open(() if self._given_server else self._module.packages)
        scratch = Path(tempfile.mkdtemp(prefix="cellblock-session-"))
        try:
            server.furnish(scratch)
            await self._enter(server, connection, scratch, {"op": "open"})
            if self._module.functions:
                await self._load_functions()
        except BaseException:
            remove_tree(str(scratch))
            if self._server is not None:
                await self._close(restarting=True)
            elif self._given_server is None:
                await server.close()
            raise

    async def _enter(
        self, server: SandboxSessionServer, connection: Connection, scratch: Path, request: dict[str, Any]
    ) -> dict[str, Any]:
        """Have a session made in the folders that are ready for it."""
        number = server.next_number()
        delete = [str(scratch), *([str(self._temporary)] if self._temporary is not None else [])]
        place = {"mounts": self._mounts(scratch), "delete": delete}
        key = "session" if request["op"] == "open" else "into"
        answer, _ = await connection.ask({**request, **place, key: number})
        if "refused" not in answer:
            server.lease()
            self._server, self._connection, self._number, self._scratch = server, connection, number, scratch
        return answer

    def _mounts(self, scratch: Path) -> list[dict[str, Any]]:
        assert self._workspace is not None
        return own_mounts(str(self._workspace.path), str(scratch))

    async def _close(self, *, restarting: bool) -> None:
        server, connection = self._server, self._connection
        self._server = self._connection = None
        if server is not None and connection is not None:
            if connection.is_open:
                with contextlib.suppress(SessionError):
                    await connection.ask({"op": "close", "session": self._number})
            await server.release()
        for mark in self._marks.values():
            mark.snapshot.remove()
        self._marks.clear()
        self._blocks = 0
        if self._scratch is not None:
            await asyncio.to_thread(remove_tree, str(self._scratch))
            self._scratch = None
        if not restarting and self._remove_temporary is not None:
            await asyncio.to_thread(self._remove_temporary)
            self._remove_temporary = self._temporary = None

    async def _load_functions(self) -> None:
        assert self._workspace is not None
        await asyncio.to_thread(self._workspace.write, f"{self._module.module_name}.py", self._module.source)
        code = f"__import__('importlib').import_module({self._module.module_name!r})"
        text, exit_code = "", 0
        async for event in self._in_session(0, code, None, quietly=True):
            if isinstance(event, Output):
                text += event.text
            elif isinstance(event, Ended):
                exit_code = event.exit_code
        if exit_code != 0:
            raise FunctionError(f"Functions failed to load: {text}")

    # blocks

    async def _run_file(
        self, number: int, block: CodeBlock, language: Language, action: Action, token: CancellationToken | None
    ) -> AsyncGenerator[Event, None]:
        if language.name != "python" or action == "save":
            async with contextlib.aclosing(super()._run_file(number, block, language, action, token)) as events:
                async for event in events:
                    yield event
            return
        assert self._workspace is not None
        workspace = self._workspace
        workspace.check()
        code, code_file, name = silence_pip(block.code, block.language), None, file_name(block.code)
        if name:
            name = workspace.place(name)
            workspace.write(name, code)
            code_file = os.path.join(workspace.shown, name)
        yield Started(number, block.language, code_file)
        since = workspace.now()
        file = f"{WORK_DIR}/{name}" if name else None
        async with contextlib.aclosing(self._in_session(number, code, token, file=file)) as events:
            async for event in events:
                if isinstance(event, Ended):
                    for path, size in workspace.changed(since, besides=name or ""):
                        yield FileMade(number, path, size)
                yield event

    async def _in_session(
        self, number: int, code: str, token: CancellationToken | None, *, file: str | None = None, quietly: bool = False
    ) -> AsyncGenerator[Event, None]:
        assert self._connection is not None
        waited = time.monotonic()
        async with self._turn:
            request: dict[str, Any] = {
                "op": "run",
                "session": self._number,
                "code": code.encode(errors="replace").decode(),
                "wall_seconds": self._wall_seconds(),
                "checkpoint": self._keeps_copies,
                "keep_processes": self._keep_processes,
                "input": self._input_callback is not None,
                "quietly": quietly,
                "file": file,
                "waited": time.monotonic() - waited,
            }
            if self._save_output and not quietly:
                assert self._workspace is not None
                request["save"] = str(self._workspace.path / f"output_{secrets.token_hex(8)}.txt")
            frames = Frames(number, self._limits)
            received = self._connection.run(request, token, on_input=self._answer_input)
            async with contextlib.aclosing(received):
                async for frame in received:
                    for event in frames.events(frame):
                        yield self._with_files(event)
            self._blocks += 1

    def _with_files(self, event: Event) -> Event:
        if not isinstance(event, Display):
            return event
        assert self._workspace is not None
        return dataclasses.replace(event, files=DisplayFiles(self._workspace.path).save(event.data))

    async def _answer_input(self, question: dict[str, Any]) -> str:
        assert self._input_callback is not None
        answer = self._input_callback(str(question.get("prompt", "")))
        return await answer if isinstance(answer, Awaitable) else answer

    def _command(self, language: Language, name: str) -> dict[str, Any]:
        assert self._scratch is not None
        request = {**super()._command(language, name), "op": "program", "session": self._number}
        return {**request, "mounts": self._mounts(self._scratch)}

    def _result(self, folder: Folder) -> SessionCodeResult:
        return folder.session_result()

    # values

    async def get(self, name: str) -> Any:
        """Give the value of variable `name`: JSON values, bytes, and for tables (Arrow's, pandas', polars') a `pyarrow.Table`.

        Raises `KeyError` when there is none of that name, and `SessionError` when it is a value of another kind.
        """
        answer, data = await self._ask({"op": "get", "name": name})
        if answer.get("missing"):
            raise KeyError(name)
        return values.decode(_checked(answer)["kind"], data)

    async def set(self, name: str, value: Any) -> None:
        """Set variable `name` to `value`: a JSON value, bytes, or a table; one of pandas' arrives as one.

        Raises `TypeError` for other values, and `ValueError` for what is no name.
        """
        if not name.isidentifier():
            raise ValueError(f"{name!r} is not the name of a variable.")
        kind, data = values.encode(value)
        answer, _ = await self._ask({"op": "set", "name": name, "kind": kind, "size": len(data)}, data)
        _checked(answer)

    async def variables(self) -> list[Variable]:
        """List the variables that blocks have made, in order of their names."""
        answer, _ = await self._ask({"op": "variables"})
        return [Variable(**entry) for entry in _checked(answer)["variables"]]

    async def _ask(self, request: dict[str, Any], value: bytes = b"") -> tuple[dict[str, Any], bytes]:
        return await engine().call(self._ask_here(request, value))

    async def _ask_here(self, request: dict[str, Any], value: bytes = b"") -> tuple[dict[str, Any], bytes]:
        if not self._is_open:
            await self._start()
        async with self._turn:
            return await self._ask_now(request, value)

    async def _ask_now(self, request: dict[str, Any], value: bytes = b"") -> tuple[dict[str, Any], bytes]:
        assert self._connection is not None
        full = {**request, "session": self._number, "wall_seconds": self._wall_seconds()}
        return await self._connection.ask(full, value)

    # checkpoints and branches

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """The checkpoints that there are, in the order in which they were made."""
        return tuple(self._marks.values())

    async def checkpoint(self, *, lifetime_seconds: float | None = None) -> Checkpoint:
        """Make a frozen copy of memory and work folder. It lives as long as the session, or `lifetime_seconds`.

        Raises `CheckpointError`, which names what cannot be copied: running threads, child processes, network connections,
        GPU contexts, shared memory; or when `Limits.checkpoints` would be exceeded.
        """
        return await engine().call(self._checkpoint(lifetime_seconds))

    async def _checkpoint(self, lifetime: float | None) -> Checkpoint:
        if not self._is_open:
            await self._start()
        async with self._turn:
            most = self._limits.checkpoints
            if most is not None and len(self._marks) >= most:
                raise CheckpointError(f"There are {most} checkpoints already (Limits.checkpoints): drop one first.")
            assert self._workspace is not None
            assert self._scratch is not None
            began, name = time.monotonic(), secrets.token_hex(8)
            answer, _ = await self._ask_now({"op": "keep", "exact": True, "mark": name})
            _checked(answer)
            before = next(reversed(self._marks.values())).snapshot if self._marks else None
            try:
                taken = await asyncio.to_thread(snapshot.take, self._workspace.path, before, self._scratch)
            except BaseException:
                await self._ask_now({"op": "drop", "mark": name})
                raise
            mark = self._marks[name] = Checkpoint.of(name, self._blocks, began, lifetime, taken)
            if lifetime is not None:
                asyncio.get_running_loop().call_later(lifetime, lambda: asyncio.ensure_future(self._drop(mark)))
            return mark

    async def drop(self, mark: Checkpoint) -> None:
        """Forget a checkpoint; does nothing when that has been done."""
        await engine().call(self._drop(mark))

    async def _drop(self, mark: Checkpoint) -> None:
        async with self._turn:
            if self._marks.pop(mark.name, None) is not None and self._connection is not None:
                await self._ask_now({"op": "drop", "mark": mark.name})
                await asyncio.to_thread(mark.snapshot.remove)

    async def restore(self, mark: Checkpoint) -> None:
        """Go back to `mark`: variables and work folder are as they were then. It can be gone back to again.

        Raises `CheckpointError` when there is no such checkpoint any more.
        """
        await engine().call(self._restore(mark))

    async def _restore(self, mark: Checkpoint) -> None:
        async with self._turn:
            self._check_mark(mark)
            assert self._workspace is not None
            await self._ask_now({"op": "halt"})
            await asyncio.to_thread(snapshot.restore, mark.snapshot, self._workspace.path)
            await self._ask_now({"op": "resume", "mark": mark.name})

    def _check_mark(self, mark: Checkpoint) -> None:
        if self._marks.get(mark.name) is not mark:
            raise CheckpointError("This checkpoint was dropped, has expired, or belongs to another session.")

    async def fork(self, count: int = 1, *, mark: Checkpoint | None = None) -> list[Self]:
        """Make `count` independent sessions that start from here, or from `mark`, and share memory until they change it.

        Each has a work folder of its own, a temporary one, and ends by its own `stop`. Random numbers of `random`, numpy and torch
        are reseeded in each. Raises `CheckpointError` as `checkpoint` does, and when forks of forks are too deep for the kernel.
        """
        if count < 1:
            raise ValueError(f"count must be at least 1, not {count!r}.")
        return await engine().call(self._fork(count, mark))

    async def _fork(self, count: int, mark: Checkpoint | None) -> list[Self]:
        if not self._is_open:
            await self._start()
        branches: list[Self] = []
        async with self._turn:
            if mark is not None:
                self._check_mark(mark)
            try:
                for _ in range(count):
                    branches.append(await self._fork_one(mark))
            except BaseException:
                for branch in branches:
                    await branch._stop()
                raise
        return branches

    async def _fork_one(self, mark: Checkpoint | None) -> Self:
        assert self._workspace is not None
        assert self._scratch is not None
        assert self._connection is not None
        assert self._server is not None
        branch = self._same_again()
        work_dir = branch.work_dir
        scratch = Path(tempfile.mkdtemp(prefix="cellblock-session-"))
        source = mark.snapshot.path if mark is not None else self._workspace.path
        try:
            await asyncio.to_thread(_copy_folders, source, work_dir, self._scratch, scratch)
            branch._workspace = Workspace(work_dir)
            request = {"op": "fork", "session": self._number, "mark": mark.name if mark is not None else None}
            _checked(await branch._enter(self._server, self._connection, scratch, request))
        except BaseException:
            remove_tree(str(scratch))
            remove_tree(str(work_dir))
            raise
        branch._blocks = mark.blocks if mark is not None else self._blocks
        branch._is_open = True
        return branch

    def _same_again(self) -> Self:
        """Make an executor with the same settings and a temporary work folder."""
        return (
            type(self)._from_config({**self._to_config(), "work_dir": None})
            if self._given_server is None
            else type(self)(
                self._timeout,
                functions=self._module.functions,
                functions_module=self._module.module_name,
                checkpoints=self._keeps_copies,
                keep_processes=self._keep_processes,
                input_callback=self._input_callback,
                server=self._given_server,
                execution_policies=self._execution_policies,
                save_output=self._save_output,
            )
        )

    # saved configurations

    def _to_config(self) -> dict[str, Any]:
        config = super()._to_config()
        del config["isolation"]
        return {**config, "checkpoints": self._keeps_copies, "keep_processes": self._keep_processes}


def _copy_folders(source: Path, work_dir: Path, scratch: Path, new_scratch: Path) -> None:
    snapshot.copy(source, work_dir)
    for name in ("home", "env"):
        snapshot.copy(scratch / name, new_scratch / name)


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    """Give `answer`, or raise what it says went wrong."""
    if refused := answer.get("refused"):
        raise CheckpointError(f"The session cannot be copied: there is {', '.join(refused)}. End that first.")
    if answer.get("why"):
        raise SessionError(f"The session did not answer within the limits ({answer['why']}).")
    if error := answer.get("error"):
        raise SessionError(str(error))
    return answer
