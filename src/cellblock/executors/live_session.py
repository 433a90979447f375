"""What a live session in the sandbox is made of: its server, its folders, its blocks."""

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
from typing import Any, ClassVar

from ..blocks import CodeBlock, file_name, silence_pip
from ..cancellation import CancellationToken
from ..cell.folders import remove_tree
from ..cell.wire import Frame
from ..engine import engine
from ..errors import PlaceError
from ..events import Display, Ended, Event, FileMade, Started
from ..functions import Function
from ..languages import Action, Language, action_for, find_language
from ..limits import SANDBOX_LIMITS, Limits
from ..places.base import Connection
from ..places.sandbox import WORK_DIR, own_mounts
from ..policy import Policy
from ..result import Folder, SessionCodeResult
from .checkpoints import Checkpoint
from .displays import DisplayFiles
from .output import Frames
from .sandbox import SandboxCommandLineCodeExecutor
from .session_server import SandboxSessionServer, WarmServer
from .workspace import OutsideWorkspace, Workspace

InputCallback = Callable[[str], str] | Callable[[str], Awaitable[str]]


class LiveSession(SandboxCommandLineCodeExecutor):
    """Open, close and run the blocks of a live session. The parameters, beside those of `SandboxCommandLineCodeExecutor`:

    checkpoints      keep a frozen copy of the session before each block, to go back to when the block ends it
    keep_processes   let processes that a block started live on for the next ones, as in a notebook; else they end with it
    input_callback   answers `input()`, given the prompt; without it `input()` fails at once
    server           a `SandboxSessionServer` that runs; `None`: one of its own. With one, `packages`, `limits`, `policy`,
                     `preload` and `virtual_env_context` are the server's and must not be given
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
            limits, policy = server.warm.limits, server.warm.policy
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
        self._server: WarmServer | None = None
        self._number = 0
        self._scratch: Path | None = None
        self._marks: dict[str, Checkpoint] = {}
        self._blocks = 0
        # One interpreter does one thing at a time; whoever comes meanwhile waits.
        self._turn = asyncio.Lock()

    # open and close

    async def _open(self) -> None:
        self._workspace = Workspace(self.work_dir, None if self._given_work_dir is None else str(self._given_work_dir))
        server = self._given_server.warm if self._given_server is not None else self._own_server()
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

    def _own_server(self) -> WarmServer:
        return WarmServer(
            packages=self._packages,
            limits=self._limits,
            policy=self._policy,
            preload=self._preload,
            virtual_env_context=self._virtual_env_context,
            stops_with_last=True,
        )

    async def _enter(
        self, server: WarmServer, connection: Connection, scratch: Path, request: dict[str, Any]
    ) -> dict[str, Any]:
        """Have a session made in the folders that are ready for it."""
        number = server.next_number()
        delete = [str(scratch), *([str(self._temporary)] if self._temporary is not None else [])]
        place = {"mounts": self._mounts(scratch), "delete": delete}
        key = "session" if request["op"] == "open" else "into"
        try:
            answer, _ = await connection.ask({**request, **place, key: number})
        except asyncio.CancelledError:
            if connection.is_open:  # it was made all the same, and belongs to nobody
                with contextlib.suppress(PlaceError):
                    await connection.ask({"op": "close", "session": number})
            raise
        if not answer.keys() & {"refused", "error"}:
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
                with contextlib.suppress(PlaceError):  # its cell has failed before
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
        await self._expect({**self._order(code), "quietly": True})

    # blocks

    async def _run_block(self, number: int, block: CodeBlock, token: CancellationToken | None) -> AsyncGenerator[Event, None]:
        language = find_language(block.language)
        if language is None or language.name != "python" or action_for(language, self._execution_policies) != "execute":
            async with contextlib.aclosing(super()._run_block(number, block, token)) as events:
                async for event in events:
                    yield event
            return
        assert self._workspace is not None
        assert self._connection is not None
        self._connection.check()
        workspace = self._workspace
        workspace.check()
        code, own_name = silence_pip(block.code, block.language), file_name(block.code)
        try:
            name = workspace.place(own_name) if own_name else ""
            since = workspace.write(name, code) if name else workspace.now()
        except OutsideWorkspace:
            yield Started(number, block.language)
            yield Ended(number, 1, "error", message="Filename is not in the workspace")
            return
        yield Started(number, block.language, os.path.join(workspace.shown, name) if name else None)
        waited, frames = time.monotonic(), Frames(number, self._limits)
        async with self._turn:
            order = {**self._order(code, name), "waited": time.monotonic() - waited}
            async with contextlib.aclosing(self._frames(order, token)) as received:
                async for frame in received:
                    for event in frames.events(frame):
                        if isinstance(event, Ended):
                            for path, size in workspace.changed(since, besides=name):
                                yield FileMade(number, path, size)
                        yield self._with_files(event)
            self._blocks += 1

    def _order(self, code: str, name: str = "") -> dict[str, Any]:
        order: dict[str, Any] = {
            "op": "run",
            "session": self._number,
            "code": code.encode(errors="replace").decode(),
            "wall_seconds": self._wall_seconds(),
            "checkpoint": self._keeps_copies,
            "keep_processes": self._keep_processes,
            "input": self._input_callback is not None,
            "file": f"{WORK_DIR}/{name}" if name else None,
        }
        if self._save_output:
            assert self._workspace is not None
            order["save"] = str(self._workspace.path / f"output_{secrets.token_hex(8)}.txt")
        return order

    def _frames(self, request: dict[str, Any], token: CancellationToken | None = None) -> AsyncGenerator[Frame, None]:
        assert self._connection is not None
        return self._connection.run(request, token, on_input=self._answer_input)

    def _with_files(self, event: Event) -> Event:
        if not isinstance(event, Display):
            return event
        assert self._workspace is not None
        return dataclasses.replace(event, files=DisplayFiles(self._workspace.path).save(event.data))

    async def _answer_input(self, question: dict[str, Any]) -> str:
        assert self._input_callback is not None
        # In a thread: it may wait for a person, and everybody's executors work on this loop.
        answer = await asyncio.to_thread(self._input_callback, str(question.get("prompt", "")))
        return await answer if isinstance(answer, Awaitable) else answer

    def _command(self, language: Language, name: str) -> dict[str, Any]:
        assert self._scratch is not None
        request = {**super()._command(language, name), "op": "program", "session": self._number}
        return {**request, "mounts": self._mounts(self._scratch)}

    def _result(self, folder: Folder) -> SessionCodeResult:
        return folder.session_result()

    # questions

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

    # saved configurations

    def _to_config(self) -> dict[str, Any]:
        config = super()._to_config()
        del config["isolation"]
        return {**config, "checkpoints": self._keeps_copies, "keep_processes": self._keep_processes}
