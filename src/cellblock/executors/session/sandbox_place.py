"""SandboxSessionPlace: a live session in a sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ...aio.shielded import run_in_thread
from ...backends.connection import Connection
from ...backends.other_systems import check_sandbox_system
from ...backends.sandbox import executor_mounts, root_mounts
from ...backends.scratch import create_scratch
from ...errors import BackendError
from ...runtime.linux.safe_folder import remove_tree
from ...runtime.messages import BlockRequest, MountSpec, RunProgram, RunRequest
from ...runtime.session_orders import CloseSession, NewBranch, OpenSession, ReclaimFiles
from ...sandbox.guarantees import Guarantee, root_guarantee, users_guarantee
from ...sandbox.images.root_file_system import RootFileSystem, RootSource
from ...sandbox.probe import find_sub_ids
from ..places.sandbox import SandboxPlace, SandboxSettings
from ..places.settings import PlaceSettings
from ..settings import Config, ExecutorSettings, to_config
from ..workspace import snapshot
from ..workspace.overlay_layer import copy_changes, is_copied
from ..workspace.workspace import Workspace
from .answers import check_answer
from .fork_request import ForkRequest
from .sandbox_server import SandboxSessionServer, SessionServer
from .state import LOSS_ADVICE, SessionState

ONE_USER = "pass users=True"


@dataclass(frozen=True, kw_only=True)
class SharedServerSettings(ExecutorSettings):
    """See `SandboxSessionCodeExecutor`."""

    server: SandboxSessionServer | None


class SandboxSessionPlace(SandboxPlace):
    """See `SandboxSessionCodeExecutor`.

    root_source   the root file system for commands, which is `root` when the place is open. None:
                  they have that of the sandbox, as the live interpreter does
    """

    loss_advice = LOSS_ADVICE
    root_source: RootSource | None = None
    root: RootFileSystem | None = None

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
        self._removal: weakref.finalize[Any, Any] | None = None

    def writable_folders(self) -> list[Path]:
        """See `Place`. Checkpoints have copies of the work folder."""
        return [*super().writable_folders(), *self.session.snapshot_folders()]

    def guarantees(self) -> tuple[Guarantee, ...]:
        """See `Place`."""
        if self.root_source is None:
            return self._own_guarantees()
        has_copy = self.scratch is not None and is_copied(self.scratch / "root")
        return (*self._own_guarantees(), root_guarantee(is_copied=has_copy))

    def _own_guarantees(self) -> tuple[Guarantee, ...]:
        if not self.users:
            return super().guarantees()
        found = find_sub_ids()
        return (*super().guarantees(), users_guarantee(found if isinstance(found, str) else ""))

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
        if self.root_source is not None:
            from ...sandbox.images.unpacking import load_root  # imports pydantic: rarely needed

            self.root = await load_root(self.root_source)
        work_dir = str(self.workspace.path)
        scratch = create_scratch("cellblock-session-", work_dir)
        server: SessionServer | None = None
        try:
            if given is None:
                server = await self._find_server([work_dir, str(scratch)])
            else:
                server = given.runtime_server
                server.add_session()
            connection = await server.open(work_dir)
            server.populate_scratch(scratch)
            if self.root is not None:
                (scratch / "root").mkdir()
            await self._create_session(server, connection, scratch)
            await self._finish_opening(load_functions)
        except BaseException:
            remove_tree(str(scratch))
            if self._server is not None:
                await self.close(restarting=True)
            raise
        finally:
            if server is not None:  # counted so far, so that it does not end
                await server.remove_session()

    async def _find_server(self, own_paths: list[str]) -> SessionServer:
        server = SessionServer(
            packages=self.settings.packages,
            limits=self.limits,
            policy=self.sandbox.policy,
            preload=self.sandbox.preload,
            virtual_env_context=self.sandbox.virtual_env_context,
            stop_with_last_session=True,
            sub_ids=await asyncio.to_thread(find_sub_ids) if self.users else ONE_USER,
        )
        return await server.join(
            self.settings.functions.packages, own_paths, group=self.sharing_group
        )

    async def _create_session(
        self, server: SessionServer, connection: Connection, scratch: Path
    ) -> None:
        """Create a session on the server, in folders that are already prepared."""
        number = server.next_session_number()
        order = OpenSession(number, self._session_mounts(scratch), self._delete_at_end(scratch))
        try:
            check_answer((await connection.request(order))[0])
        except BaseException:
            if connection.is_open:  # the server may have created the session, so close it
                with contextlib.suppress(BackendError):
                    await connection.request(CloseSession(number))
            raise
        self._join_server(server, connection, number, scratch)

    def _delete_at_end(self, scratch: Path) -> tuple[str, ...]:
        return (str(scratch), *self._temp_dirs_to_delete())

    def _join_server(
        self, server: SessionServer, connection: Connection, number: int, scratch: Path
    ) -> None:
        server.add_session()
        connection.loss_advice = self.loss_advice
        self._server, self.connection, self.session.number, self.scratch = (
            server,
            connection,
            number,
            scratch,
        )
        # For executors that are garbage-collected without `stop`.
        loop = asyncio.get_running_loop()
        close = functools.partial(server.close_session, connection, number, scratch)
        self._removal = weakref.finalize(self, server.remove_collected, loop, close)
        self._removal.atexit = False

    def _mounts(self, scratch: Path) -> tuple[MountSpec, ...]:
        mounts = executor_mounts(
            str(self.workspace.path),
            str(scratch),
            self.sandbox.policy,
            self._protected,
            work_dir_target=self.inner_work_dir,
        )
        return tuple(mounts)

    def _session_mounts(self, scratch: Path) -> tuple[MountSpec, ...]:
        root = [] if self.root is None else root_mounts(self.root.path, str(scratch))
        return (*self._mounts(scratch), *root)

    async def close(self, *, restarting: bool) -> None:
        """See `Place`."""
        server, connection, scratch = self._server, self.connection, self.scratch
        self._server = self.connection = self.scratch = None
        try:
            if server is not None and connection is not None and scratch is not None:
                if self._removal is not None:
                    self._removal.detach()
                await server.close_session(connection, self.session.number, scratch)
        finally:
            self.session.discard_checkpoints()
            await self._release_work_dir()
            if not restarting:
                await self._remove_temp_dir()

    def program_request(self, request: RunRequest) -> BlockRequest:
        """See `Place`."""
        assert self.scratch is not None
        return RunProgram(self.session.number, request, self._mounts(self.scratch))

    # forks

    async def prepare_copy(self) -> None:
        """See `Place`. What other users of a box have made there becomes its user's."""
        await self._reclaim(self.workspace.path)

    async def _reclaim(self, *folders: Path) -> None:
        if self.users:
            order = ReclaimFiles(self.session.number, tuple(map(os.path.realpath, folders)))
            check_answer((await self.require_connection().request(order))[0])

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

    async def fork(self, request: ForkRequest) -> list[Self]:
        """Return the open places of new branches. If it raises, it leaves nothing behind."""
        connection, server, own_scratch = self.require_connection(), self._server, self.scratch
        assert server is not None
        assert own_scratch is not None
        checkpoint = request.checkpoint
        source = self.workspace.path if checkpoint is None else checkpoint.snapshot
        made: list[tuple[Self, int, Path]] = []

        def copy_folders() -> None:
            for _ in range(request.count):
                branch = self.copy_with_work_dir(None)
                scratch = create_scratch("cellblock-session-", branch.work_dir)
                made.append((branch, server.next_session_number(), scratch))
                room = request.max_copied_bytes
                copied = snapshot.copy_folder(source, branch.work_dir, room)
                branch.session.copied_from = copied
                for name in ("home", "env"):
                    snapshot.copy_folder(own_scratch / name, scratch / name, room)
                if self.root is not None:
                    copy_changes(own_scratch / "root", scratch / "root", room)
                branch._workspace = Workspace(branch.work_dir)

        scratch_folders = [own_scratch / name for name in ("home", "env", "root")]
        await self._reclaim(self.workspace.path, *scratch_folders)
        try:
            await run_in_thread(copy_folders)
            branches = [
                NewBranch(number, branch._session_mounts(scratch), branch._delete_at_end(scratch))
                for branch, number, scratch in made
            ]
            await request.send(connection, self.session.number, branches)
        except BaseException:
            for branch, _, scratch in made:
                remove_tree(str(scratch))
                remove_tree(str(branch.work_dir))
            raise
        for branch, number, scratch in made:
            branch._join_server(server, connection, number, scratch)
        return [branch for branch, _, _ in made]

    # settings

    def to_config(self) -> Config:
        """See `Place`."""
        config = {**super().to_config(), **to_config(self._shared)}
        del config["isolation"]  # always full
        return config
