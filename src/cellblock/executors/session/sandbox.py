"""SandboxSessionCodeExecutor: a live session behind walls, which its own code cannot lose."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

from ...backends.base import Connection
from ...backends.sandbox import own_mounts
from ...errors import BackendError, CheckpointError
from ...functions.module import Function
from ...languages import Action, Language
from ...limits import SANDBOX_LIMITS, Limits
from ...policy import Policy
from ...runtime.linux.rmtree import remove_tree
from ..command_line.sandbox import SandboxCommandLineCodeExecutor
from ..workspace import snapshot
from ..workspace.workspace import Workspace
from .base import InputCallback
from .checkpoint import Checkpoint
from .checkpointing import CopiedSession, Variable, checked
from .sandbox_server import SandboxSessionServer, SessionServer

__all__ = ["SandboxSessionCodeExecutor", "Variable"]


class SandboxSessionCodeExecutor(CopiedSession, SandboxCommandLineCodeExecutor):
    """Run Python blocks in one live interpreter in a sandbox: a notebook's semantics, and a session that cannot be lost.

    Variables, imports and files stay from block to block. What a block does to its process, from `os._exit` to running out of
    memory, costs that block alone: the session goes on with the variables of before it, and the result says so
    (`session_restored`, `notice`). Blocks in other languages are fresh processes over the same work folder.

    server   a `SandboxSessionServer` that runs; `None`: one of its own. With one, `packages`, `limits`, `policy`, `preload`
             and `virtual_env_context` are the server's and must not be given

    For the other parameters see `LiveSession` and `SandboxCommandLineCodeExecutor`. Results are `SessionCodeResult`s.
    Starting raises `SandboxUnavailable` where this machine does not allow the sandbox, `BackendError` when the blocks' Python
    has no IPython.
    """

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
            if (
                packages
                or policy is not None
                or preload
                or virtual_env_context
                or limits is not SANDBOX_LIMITS
            ):
                raise ValueError(
                    "packages, limits, policy, preload and virtual_env_context are the server's: give them to it."
                )
            limits, policy = server.warm.limits, server.warm.policy
        SandboxCommandLineCodeExecutor.__init__(
            self,
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
        self._live(
            checkpoints=checkpoints, keep_processes=keep_processes, input_callback=input_callback
        )
        self._given_server = server
        self._server: SessionServer | None = None
        self._scratch: Path | None = None

    # open and close

    async def _open(self) -> None:
        async with self._using():
            await self._enter_server()

    async def _enter_server(self) -> None:
        self._workspace = Workspace(
            self.work_dir, None if self._given_work_dir is None else str(self._given_work_dir)
        )
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

    def _own_server(self) -> SessionServer:
        return SessionServer(
            packages=self._packages,
            limits=self._limits,
            policy=self._policy,
            preload=self._preload,
            virtual_env_context=self._virtual_env_context,
            stops_with_last=True,
        )

    async def _enter(
        self, server: SessionServer, connection: Connection, scratch: Path, request: dict[str, Any]
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
                with contextlib.suppress(BackendError):
                    await connection.ask({"op": "close", "session": number})
            raise
        if not answer.keys() & {"refused", "error"}:
            server.lease()
            self._server, self._connection, self._number, self._scratch = (
                server,
                connection,
                number,
                scratch,
            )
        return answer

    def _mounts(self, scratch: Path) -> list[dict[str, Any]]:
        assert self._workspace is not None
        return own_mounts(str(self._workspace.path), str(scratch), self._policy)

    async def _close(self, *, restarting: bool) -> None:
        server, connection = self._server, self._connection
        self._server = self._connection = None
        if server is not None and connection is not None:
            if connection.is_open:
                with contextlib.suppress(BackendError):  # its cell has failed before
                    await connection.ask({"op": "close", "session": self._number})
            await server.release()
        self._forget_marks()
        await self._end_use()
        if self._scratch is not None:
            await asyncio.to_thread(remove_tree, str(self._scratch))
            self._scratch = None
        if not restarting and self._remove_temporary is not None:
            await asyncio.to_thread(self._remove_temporary)
            self._remove_temporary = self._temporary = None

    def _command(self, language: Language, name: str) -> dict[str, Any]:
        assert self._scratch is not None
        request = {**super()._command(language, name), "op": "program", "session": self._number}
        return {**request, "mounts": self._mounts(self._scratch)}

    # branches

    def _own_folder(self) -> Path:
        assert self._scratch is not None
        return self._scratch

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
            await asyncio.to_thread(
                _copy_folders, source, work_dir, self._scratch, scratch, self._limits.written_bytes
            )
            branch._workspace = Workspace(work_dir)
            request: dict[str, Any] = {
                "op": "fork",
                "session": self._number,
                "checkpoint": self._keeps_copies,
            }
            request["mark"] = mark.name if mark is not None else None
            checked(
                await branch._enter(self._server, self._connection, scratch, request),
                CheckpointError,
            )
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
        return config


def _copy_folders(
    source: Path, work_dir: Path, scratch: Path, new_scratch: Path, most: int | None
) -> None:
    snapshot.copy(source, work_dir, most)
    for name in ("home", "env"):
        snapshot.copy(scratch / name, new_scratch / name, most)
