"""DockerSessionPlace: a live session in a container."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Self

from ...aio.shielded import run_in_thread
from ...backends.base import Backend
from ...backends.connection import Connection
from ...backends.container import FIRST_SESSION
from ...cancellation import Token
from ...containers import users
from ...containers.client import EngineClient
from ...containers.spec import ContainerSpec
from ...errors import BackendError, BackendLost, CheckpointError, ExecutorStopped
from ...runtime.linux.safe_folder import SafeFolder, remove_tree
from ...runtime.messages import BlockRequest, RunProgram, RunRequest
from ...runtime.protocol import Frame
from ...runtime.session_orders import CloseSession, DropCheckpoint, NewBranch
from ...sandbox.images.root_file_system import RootFileSystem
from ..places.base import OnInput
from ..places.docker import DockerPlace, server_lost_frame
from ..workspace import snapshot
from ..workspace.temp_dir_removal import TempDirRemoval
from ..workspace.temp_dirs import SharedTempDir
from ..workspace.workspace import Workspace
from .fork_request import ForkRequest
from .state import LOSS_ADVICE, SessionState

_BRANCHES_DIR = "/branches"  # folder in the container with the work folders of branches
_CANNOT_FORK = (
    "fork() is not possible with {}: a branch's work folder must be mounted in the container."
)


class DockerSessionPlace(DockerPlace):
    """See `DockerSessionCodeExecutor`."""

    loss_advice = LOSS_ADVICE
    root: RootFileSystem | None = None  # commands have that of the container

    def _init_state(self) -> None:
        super()._init_state()
        self.session = SessionState()
        self._container_group: _ContainerGroup | None = None
        self._branch_dir: SharedTempDir | None = None  # of a branch: contains its work folder
        self._branch_folder = ""  # of a branch: its work folder in the container

    def writable_folders(self) -> list[Path]:
        """See `Place`. Checkpoints have copies of the work folder."""
        return [*super().writable_folders(), *self.session.snapshot_folders()]

    # open and close

    async def open(self, load_functions: Callable[[], Awaitable[None]] | None = None) -> None:
        """See `Place`."""
        self._container_group = _ContainerGroup(self.work_dir)
        self.session.number, self._branch_folder = FIRST_SESSION, ""
        try:
            await super().open(load_functions)
        except BaseException:
            await self._leave_group()
            raise

    async def _make_backend(self, packages: tuple[str, ...], delete: list[str]) -> Backend:
        await super()._make_backend(packages, delete)
        assert self._backend is not None
        self._backend = replace(self._backend, sessions=True)
        return self._backend

    def _container_spec(self, client: EngineClient) -> ContainerSpec:
        spec = super()._container_spec(client)
        group = self._container_group
        if group is None or self._fork_obstacle() is not None:
            return spec
        folder = group.branches_dir = group.temp_dir().subdir("branches")
        users.chown_to_container_user(folder, client, spec.user)
        volumes = {**spec.volumes, str(folder): {"bind": _BRANCHES_DIR, "mode": "rw"}}
        return replace(spec, volumes=volumes)

    def _fork_obstacle(self) -> str | None:
        """Return the option that makes forks impossible, because work folders cannot be mounted."""
        if self.docker.transfer == "copy":
            return 'transfer="copy"'
        if self.docker.bind_dir is not None:
            return "bind_dir"
        return "a container that is kept" if self._keeps_container else None

    async def close(self, *, restarting: bool) -> None:
        """See `Place`."""
        connection = self.connection
        self.session.discard_checkpoints()
        if self._container_group is not None and self._container_group.session_count > 1:
            if connection is not None and connection.is_open:
                with contextlib.suppress(BackendError):  # its cell can have ended before
                    await connection.request(CloseSession(self.session.number))
            # The other sessions of the group still use the container.
            self.connection = self._lifecycle = self._backend = self._client = None
        try:
            await super().close(restarting=restarting)
        finally:
            await self._leave_group()
            if not restarting and self._branch_dir is not None:
                branch_dir, self._branch_dir = self._branch_dir, None
                await branch_dir.release()

    async def _leave_group(self) -> None:
        group, self._container_group = self._container_group, None
        if group is not None:
            await group.leave()

    def checkpoint_dir(self) -> Path:
        """Return the folder for snapshots. It lives as long as the session.

        Raise `CheckpointError` if a checkpoint would not have the files.
        """
        if self.docker.transfer == "copy":
            raise CheckpointError(
                'checkpoint() is not possible with transfer="copy": the work folder exists only in '
                'the container. Use transfer="bind".'
            )
        assert self._container_group is not None
        return self._container_group.temp_dir().subdir("checkpoints")

    # blocks

    def check_backend(self) -> None:
        """Do nothing: running the block detects that the server has ended and restarts it."""

    @property
    def current_folder(self) -> str:
        """The path of the work folder as blocks of this session see it."""
        return self._branch_folder or self.inner_work_dir

    def path_in_backend(self, name: str) -> str:
        """See `Place`."""
        return f"{self.current_folder}/{name}"

    def program_request(self, request: RunRequest) -> BlockRequest:
        """See `Place`."""
        job = request.job._replace(cwd=self.current_folder)
        return RunProgram(self.session.number, request._replace(job=job))

    async def frames(
        self, request: BlockRequest, token: Token | None = None, on_input: OnInput | None = None
    ) -> AsyncGenerator[Frame, None]:
        """See `DockerPlace`."""
        connection, begun = self.require_connection(), time.monotonic()
        try:
            async with contextlib.aclosing(super().frames(request, token, on_input)) as frames:
                async for frame in frames:
                    yield frame
        except (BackendLost, ExecutorStopped):
            raise
        except BackendError as error:
            if await self._session_exists(connection):
                raise
            lost = self.session.block_count
            recovery = await self._recover(connection, BackendLost(str(error)))
            yield server_lost_frame(request, time.monotonic() - begun, recovery, lost)

    async def _session_exists(self, connection: Connection) -> bool:
        """Return True if the server still has the session. Code can kill its first process."""
        with contextlib.suppress(BackendError):
            await connection.request(DropCheckpoint(self.session.number, ""))
            return True
        return False

    async def _recover(self, lost: Connection, error: BackendLost) -> str:
        if self.session.number != FIRST_SESSION:
            raise BackendLost(f"{error} The branch is lost. Call fork() again.") from error
        recovery = await super()._recover(lost, error)
        self.session.discard_checkpoints()
        return recovery

    # forks

    async def fork(self, request: ForkRequest) -> list[Self]:
        """Return the open places of new branches. If it raises, it leaves nothing behind."""
        connection, group = self.require_connection(), self._container_group
        assert group is not None
        if obstacle := self._fork_obstacle():
            raise CheckpointError(_CANNOT_FORK.format(obstacle))
        checkpoint, own = request.checkpoint, self.workspace.path
        source = own if checkpoint is None else checkpoint.snapshot
        made = [
            (next(group.session_numbers), group.branches_dir / secrets.token_hex(8))
            for _ in range(request.count)
        ]

        def copy_folders() -> list[snapshot.Snapshot | None]:
            room = request.max_copied_bytes
            return [_copy_folder(source, folder, own, room) for _, folder in made]

        requested = [
            NewBranch(number, folder=f"{_BRANCHES_DIR}/{folder.name}") for number, folder in made
        ]
        try:
            copied = await run_in_thread(copy_folders)
            await request.send(connection, self.session.number, requested)
        except BaseException:
            for _, folder in made:
                remove_tree(str(folder))
            raise
        branches = [self._new_branch() for _ in made]
        for branch, (number, folder), shared in zip(branches, made, copied, strict=True):
            branch.session.copied_from = shared
            branch._join_group(self, number, folder, f"{_BRANCHES_DIR}/{folder.name}")
        return branches

    def _new_branch(self) -> Self:
        branch = self.copy_with_work_dir(None)
        branch.docker = replace(self.docker, container_name=None)
        return branch

    def _join_group(
        self, other: DockerSessionPlace, number: int, folder: Path, branch_folder: str
    ) -> None:
        """Become a branch in the container of `other`."""
        assert other._container_group is not None
        self._container_group = other._container_group
        self._branch_dir = self._container_group.temp_dir()
        self._container_group.session_count += 1
        self._branch_dir.acquire()
        self._client, self._lifecycle = other._client, other._lifecycle
        self._backend, self.connection = other._backend, other.connection
        self.session.number, self._branch_folder = number, branch_folder
        self._temp_dir, self._temp_dir_removal = folder, TempDirRemoval(self, folder)
        self._workspace = Workspace(folder)


class _ContainerGroup:
    """The sessions that share one container, which ends with the last of them.

    `branches_dir` contains the work folders of branches.
    """

    def __init__(self, work_dir: Path) -> None:
        self.session_count = 1
        self._work_dir = work_dir
        self.session_numbers = itertools.count(FIRST_SESSION + 1)
        self.branches_dir = Path()
        self._temp_dir: SharedTempDir | None = None

    def temp_dir(self) -> SharedTempDir:
        """Return the temporary folder of the group. The first call creates it."""
        if self._temp_dir is None:
            self._temp_dir = SharedTempDir(self._work_dir)
            self._temp_dir.acquire()
        return self._temp_dir

    async def leave(self) -> None:
        """Remove a session from the group. The last one releases the temporary folder."""
        self.session_count -= 1
        if self.session_count == 0 and self._temp_dir is not None:
            await self._temp_dir.release()


def _copy_folder(
    source: Path | snapshot.Snapshot, target: Path, owner_of: Path, max_copied_bytes: int | None
) -> snapshot.Snapshot | None:
    """Copy `source` to `target`, and give `target` the owner of `owner_of`."""
    target.mkdir(mode=0o700)
    with SafeFolder.at(target) as made:  # code of other branches can replace it
        copied = snapshot.copy_folder(source, target, max_copied_bytes)
        status = os.stat(owner_of)
        if sys.platform != "win32":
            with contextlib.suppress(PermissionError):  # without root, all have the same owner
                os.chown(made.descriptor, status.st_uid, status.st_gid)
    return copied
