"""SandboxSessionPlace: a live session in a sandbox."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ...aio.shielded import run_in_thread
from ...backends.connection import Connection
from ...backends.other_systems import check_sandbox_system
from ...backends.sandbox import executor_mounts
from ...backends.scratch import create_scratch
from ...errors import BackendError, CheckpointError
from ...languages import Language
from ...runtime.linux.safe_folder import remove_tree
from ..places.sandbox import SandboxPlace, SandboxSettings
from ..places.settings import PlaceSettings
from ..settings import Config, ExecutorSettings, to_config
from ..workspace import snapshot
from ..workspace.workspace import Workspace
from .answers import check_answer
from .checkpoint import Checkpoint
from .sandbox_server import SandboxSessionServer, SessionServer
from .state import LOSS_ADVICE, SessionState


@dataclass(frozen=True, kw_only=True)
class SharedServerSettings(ExecutorSettings):
    """See `SandboxSessionCodeExecutor`."""

    server: SandboxSessionServer | None


class SandboxSessionPlace(SandboxPlace):
    """See `SandboxSessionCodeExecutor`."""

    loss_advice = LOSS_ADVICE

    def __init__(
        self, settings: PlaceSettings, sandbox: SandboxSettings, server: SandboxSessionServer | None
    ) -> None:
        super().__init__(settings, sandbox)
        self._shared = SharedServerSettings(server=server)
        if server is not None:
            self.inner_work_dir = server.runtime_server.inner_work_dir

    def _init_state(self) -> None:
        super()._init_state()
        self.session = SessionState()
        self._server: SessionServer | None = None

    def writable_folders(self) -> list[Path]:
        """See `Place`. Checkpoints have copies of the work folder."""
        return [*super().writable_folders(), *self.session.snapshot_folders()]

    # open and close

    async def open(self, load_functions: Callable[[], Awaitable[None]] | None = None) -> None:
        """See `Place`."""
        check_sandbox_system()
        async with self._lease_work_dir():
            await self._open_session(load_functions)

    async def _open_session(self, load_functions: Callable[[], Awaitable[None]] | None) -> None:
        self._open_workspace()
        await self._protect_startup_files(self.workspace)
        given = self._shared.server
        server = self._private_server() if given is None else given.runtime_server
        work_dir = str(self.workspace.path)
        scratch = create_scratch("cellblock-session-", work_dir)
        try:
            connection = await (
                server.open(self.settings.functions.packages, work_dir)
                if given is None
                else server.open()
            )
            server.populate_scratch(scratch)
            await self._create_session(server, connection, scratch, {"op": "open"})
            await self._finish_opening(load_functions)
        except BaseException:
            remove_tree(str(scratch))
            if self._server is not None:
                await self.close(restarting=True)
            elif self._shared.server is None:
                await server.close()
            raise

    def _private_server(self) -> SessionServer:
        return SessionServer(
            packages=self.settings.packages,
            limits=self.limits,
            policy=self.sandbox.policy,
            preload=self.sandbox.preload,
            virtual_env_context=self.sandbox.virtual_env_context,
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
            self._server, self.connection, self.session.number, self.scratch = (
                server,
                connection,
                number,
                scratch,
            )
        return answer

    def _mounts(self, scratch: Path) -> list[dict[str, Any]]:
        work_dir = str(self.workspace.path)
        return executor_mounts(
            work_dir,
            str(scratch),
            self.sandbox.policy,
            self._protected,
            work_dir_target=self.inner_work_dir,
        )

    async def close(self, *, restarting: bool) -> None:
        """See `Place`."""
        server, connection = self._server, self.connection
        self._server = self.connection = None
        try:
            if server is not None and connection is not None:
                if connection.is_open:
                    with contextlib.suppress(BackendError):  # its cell can have ended before
                        await connection.request({"op": "close", "session": self.session.number})
                await server.remove_session()
        finally:
            self.session.discard_checkpoints()
            await self._release_work_dir()
            if self.scratch is not None:
                await asyncio.to_thread(remove_tree, str(self.scratch))
                self.scratch = None
            if not restarting:
                await self._remove_temp_dir()

    def command(self, language: Language, name: str) -> dict[str, Any]:
        """See `Place`."""
        assert self.scratch is not None
        request = {**super().command(language, name), "op": "program"}
        session = {"session": self.session.number, "mounts": self._mounts(self.scratch)}
        return {**request, **session}

    # forks

    def has_lost_server(self) -> bool:
        """See `Place`. A new server would silently begin a new session."""
        return False

    def check_backend(self) -> None:
        """Raise `BackendLost` if the server is gone, before anything is written for a block."""
        self.require_connection().check_open()

    @property
    def current_folder(self) -> str:
        """The path of the work folder as blocks of this session see it."""
        return self.inner_work_dir

    def checkpoint_dir(self) -> Path:
        """Return the folder for snapshots. It lives as long as the session. Code cannot see it."""
        assert self.scratch is not None
        return self.scratch

    async def fork(
        self,
        checkpoint: Checkpoint | None,
        max_copied_bytes: int | None,
        *,
        rollback_checkpoints: bool,
    ) -> Self:
        """Return the open place of a new branch. If it raises, it leaves nothing behind."""
        connection, server, own_scratch = self.require_connection(), self._server, self.scratch
        assert server is not None
        assert own_scratch is not None
        branch = self.copy_with_work_dir(None)
        work_dir = branch.work_dir
        scratch = create_scratch("cellblock-session-", work_dir)
        source = checkpoint.snapshot if checkpoint is not None else self.workspace.path
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
                "session": self.session.number,
                "rollback_checkpoints": rollback_checkpoints,
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
        return branch

    # settings

    def to_config(self) -> Config:
        """See `Place`."""
        config = {**super().to_config(), **to_config(self._shared)}
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
