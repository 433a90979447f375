"""SandboxSessionCodeExecutor: a live session in a sandbox, restored if its own code kills it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING

from ...functions.module import Function
from ...languages import Action
from ...limits import SANDBOX_LIMITS, Limits
from ...policy import Policy
from ...runtime.linux.safe_folder import remove_tree
from ..argument_checks import check_bool
from ..command_line.sandbox import SandboxCommandLineCodeExecutor
from ..settings import ExecutorSettings
from ..workspace import snapshot
from ..workspace.workspace import Workspace
from .base import InputCallback, SessionSettings
from .checkpoint import Checkpoint
from .checkpointing import CheckpointableSession, Variable, check_answer
from .sandbox_server import SandboxSessionServer, SessionServer

__all__ = ["SandboxSessionCodeExecutor", "Variable"]


class SandboxSessionCodeExecutor(SessionExecutor):
    """Run Python blocks in one live interpreter in a sandbox, as a notebook does.

    Variables, imports and files stay from block to block. If a block kills its process, for example
    with `os._exit` or by running out of memory, only that block fails. The session continues with
    the variables from before the block, and the result says so (`session_restored`, `notice`).
    Blocks in other languages are fresh processes in the same work folder.

    server   a running `SandboxSessionServer`. `None` starts a private one. With a server, do not
             pass `packages`, `limits`, `policy`, `preload` or `virtual_env_context`: the server
             defines them

    For the other parameters see `SessionExecutor` and `SandboxCommandLineCodeExecutor`. Results are
    `SessionCodeResult` objects. Starting raises `SandboxUnavailable` if this machine does not
    support the sandbox, and `BackendError` if the blocks' Python has no IPython.
    """

    if TYPE_CHECKING:

        @property
        def place(self) -> SandboxSessionPlace: ...

    def __init__(
        self,
        timeout: float | None = 60,
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
                    "packages, limits, policy, preload and virtual_env_context are defined by the "
                    "server. Pass them to SandboxSessionServer."
                )
            limits, policy = server.runtime_server.limits, server.runtime_server.policy
        settings = PlaceSettings.checked(
            timeout,
            work_dir,
            functions,
            functions_module,
            cleanup_temp_files,
            packages=packages,
            limits=limits,
            execution_policies=execution_policies,
            save_output=save_output,
        )
        sandbox = SandboxSettings.checked(virtual_env_context, policy, preload)
        live = SessionSettings.checked(checkpoints, keep_processes, input_callback)
        super().__init__(SandboxSessionPlace(settings, sandbox, server), live)

    def _init_state(self) -> None:
        super()._init_state()
        self._server: SessionServer | None = None

    # open and close

    async def _open(self) -> None:
        check_sandbox_system()
        async with self._lease_work_dir():
            await self._open_session()

    async def _open_session(self) -> None:
        self._workspace = Workspace(
            self.work_dir, None if self._settings.work_dir is None else str(self._settings.work_dir)
        )
        await self._protect_startup_files(self._workspace)
        given = self._shared.server
        server = self._private_server() if given is None else given.runtime_server
        work_dir = str(self._workspace.path)
        scratch = create_scratch("cellblock-session-", work_dir)
        try:
            connection = await (
                server.open(self._settings.functions.packages, work_dir)
                if given is None
                else server.open()
            )
            server.populate_scratch(scratch)
            await self._create_session(server, connection, scratch, {"op": "open"})
            if self._settings.functions.functions:
                await self._load_functions()
            await self._record_startup_files()
        except BaseException:
            remove_tree(str(scratch))
            if self._server is not None:
                await self._close(restarting=True)
            elif self._shared.server is None:
                await server.close()
            raise

    def _private_server(self) -> SessionServer:
        return SessionServer(
            packages=self._settings.packages,
            limits=self.limits,
            policy=self.policy,
            preload=self._sandbox.preload,
            virtual_env_context=self._sandbox.virtual_env_context,
            stop_with_last_session=True,
        )

    async def _create_session(
        self, server: SessionServer, connection: Connection, scratch: Path, request: dict[str, Any]
    ) -> dict[str, Any]:
        """Create a session on the server, in folders that are already prepared."""
        number = server.next_session_number()
        delete = [str(scratch), *self._temp_dirs_to_delete()]
        folders = {"mounts": self._mounts(scratch), "delete": delete}
        key = "session" if request["op"] == "open" else "new_session"
        try:
            answer, _ = await connection.request({**request, **folders, key: number})
        except asyncio.CancelledError:
            if connection.is_open:  # the server still creates the session, so close it
                with contextlib.suppress(BackendError):
                    await connection.request({"op": "close", "session": number})
            raise
        if not answer.keys() & {"refused", "error"}:
            server.add_session()
            connection.loss_advice = self.loss_advice
            self._server, self._connection, self._session_number, self._scratch = (
                server,
                connection,
                number,
                scratch,
            )
        return answer

    def _mounts(self, scratch: Path) -> list[dict[str, Any]]:
        assert self._workspace is not None
        work_dir = str(self._workspace.path)
        return executor_mounts(
            work_dir,
            str(scratch),
            self.policy,
            self._protected,
            work_dir_target=self.inner_work_dir,
        )

    async def _close(self, *, restarting: bool) -> None:
        server, connection = self._server, self._connection
        self._server = self._connection = None
        try:
            if server is not None and connection is not None:
                if connection.is_open:
                    with contextlib.suppress(BackendError):  # its cell can have ended before
                        await connection.request({"op": "close", "session": self._session_number})
                await server.remove_session()
        finally:
            self._discard_checkpoints()
            await self._release_work_dir()
            if self._scratch is not None:
                await asyncio.to_thread(remove_tree, str(self._scratch))
                self._scratch = None
            if not restarting:
                await self._remove_temp_dir()

    def _command(self, language: Language, name: str) -> dict[str, Any]:
        assert self._scratch is not None
        request = {**super()._command(language, name), "op": "program"}
        session = {"session": self._session_number, "mounts": self._mounts(self._scratch)}
        return {**request, **session}

    # forks

    def _checkpoint_dir(self) -> Path:
        assert self._scratch is not None
        return self._scratch

    async def _fork_one(self, checkpoint: Checkpoint | None, max_copied_bytes: int | None) -> Self:
        assert self._workspace is not None
        connection, server, own_scratch = self._require_connection(), self._server, self._scratch
        assert server is not None
        assert own_scratch is not None
        branch = self._copy_with_work_dir(None)
        work_dir = branch.work_dir
        scratch = create_scratch("cellblock-session-", work_dir)
        source = checkpoint.snapshot if checkpoint is not None else self._workspace.path
        try:
            await run_in_thread(
                _copy_folders,
                source,
                work_dir,
                own_scratch,
                scratch,
                max_copied_bytes,
            )
            branch._workspace = Workspace(work_dir)
            request: dict[str, Any] = {
                "op": "fork",
                "session": self._session_number,
                "rollback_checkpoints": self._session.checkpoints,
            }
            request["checkpoint_key"] = checkpoint.key if checkpoint is not None else None
            check_answer(
                await branch._create_session(server, connection, scratch, request),
                CheckpointError,
            )
        except BaseException:
            remove_tree(str(scratch))
            remove_tree(str(work_dir))
            raise
        branch._block_count = checkpoint.blocks if checkpoint is not None else self._block_count
        branch._mark_open()
        return branch

    # settings

    def _all_settings(self) -> tuple[ExecutorSettings, ...]:
        return (*super()._all_settings(), self._shared)

    def _to_config(self) -> dict[str, Any]:
        config = super()._to_config()
        del config["isolation"]  # always full
        return config


def _copy_folders(
    source: Path | snapshot.Snapshot,
    work_dir: Path,
    scratch: Path,
    new_scratch: Path,
    max_copied_bytes: int | None,
) -> None:
    snapshot.copy_folder(source, work_dir, max_copied_bytes)
    for name in ("home", "env"):
        snapshot.copy_folder(scratch / name, new_scratch / name, max_copied_bytes)
