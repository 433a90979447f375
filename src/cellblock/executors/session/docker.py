"""DockerSessionCodeExecutor: a live session in a container."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...aio.shielded import run_in_thread
from ...backends.base import Backend
from ...backends.connection import Connection
from ...backends.container import FIRST_SESSION
from ...cancellation import Token
from ...containers import users
from ...containers.client import EngineClient
from ...containers.spec import ContainerSpec
from ...errors import BackendError, BackendLost, CheckpointError, ExecutorStopped
from ...languages import Language
from ...runtime.linux.safe_folder import remove_tree
from ...runtime.protocol import Frame
from ..argument_checks import check_bool
from ..command_line.docker import IMAGE, DockerCommandLineCodeExecutor, server_lost_frame
from ..workspace import snapshot
from ..workspace.temp_dir_removal import TempDirRemoval
from ..workspace.temp_dirs import SharedTempDir
from ..workspace.workspace import Workspace
from .base import InputCallback, SessionSettings
from .checkpoint import Checkpoint
from .checkpointing import CheckpointableSession, check_answer

_NO_MOUNTS = list[str]()
_BRANCHES_DIR = "/branches"  # folder in the container with the work folders of branches
_CANNOT_FORK = (
    "fork() is not possible with {}: a branch's work folder must be mounted in the container."
)


class DockerSessionCodeExecutor(SessionExecutor):
    """Run Python blocks in one live interpreter in a container.

    It has all methods of `SandboxSessionCodeExecutor`. The image needs Python and IPython. For the
    parameters see `SessionExecutor` and `DockerCommandLineCodeExecutor`. Results are
    `SessionCodeResult` objects. Starting raises `BackendError` if the image has no IPython, and the
    errors of `DockerCommandLineCodeExecutor`.

    A container has one set of namespaces and one user. So it isolates less than the sandbox:

    * A session, its checkpoints, its branches and its blocks in other languages share the
      container: /tmp, /dev/shm, the home folder, the network and the list of processes. They can
      send signals to each other and to the runtime server. If code kills the server, the session
      is lost: all other processes in the container are killed too, and the result says that the
      session was restarted.
    * The work folder of a branch is not /workspace but a folder in /branches. It is the current
      folder of the branch, and open files refer to it. But an absolute path in the code or in a
      variable still refers to the folder of the original session.
    * A branch ends with its container, which runs until its last session stops. `fork` raises
      `CheckpointError` if the container is kept (`auto_remove`, `stop_container`), with `bind_dir`
      and with `transfer="copy"`. With the latter, `checkpoint` raises it too.
    * Memory, processes and CPUs are limited for the container as a whole.
    """

    if TYPE_CHECKING:

        @property
        def place(self) -> DockerSessionPlace: ...

    def __init__(
        self,
        image: str = IMAGE,
        container_name: str | None = None,
        *,
        checkpoints: bool = True,
        keep_processes: bool = False,
        input_callback: InputCallback | None = None,
        **options: Any,
    ) -> None:
        place = DockerCommandLineCodeExecutor(image, container_name, **options).place
        live = SessionSettings.checked(checkpoints, keep_processes, input_callback)
        super().__init__(DockerSessionPlace(place.settings, place.docker), live)

    @property
    def container(self) -> str | None:
        """The name of the current container, or `None` if none is running."""
        return self.place.container

    def _path_in_backend(self, name: str) -> str:
        return f"{self._current_folder}/{name}"

    def _command(self, language: Language, name: str) -> dict[str, Any]:
        session = {
            "op": "program",
            "session": self._session_number,
            "mounts": _NO_MOUNTS,
            "cwd": self._current_folder,
        }
        return {**super()._command(language, name), **session}

    async def _frames(
        self, request: dict[str, Any], token: Token | None = None
    ) -> AsyncGenerator[Frame, None]:
        connection, begun = self._connection, time.monotonic()
        assert connection is not None
        try:
            async with contextlib.aclosing(super()._frames(request, token)) as frames:
                async for frame in frames:
                    yield frame
        except (BackendLost, ExecutorStopped):
            raise
        except BackendError as error:
            if await self._session_exists(connection):
                raise
            lost = self._block_count
            recovery = await self._recover(connection, BackendLost(str(error)))
            yield server_lost_frame(request, time.monotonic() - begun, recovery, lost)

    async def _session_exists(self, connection: Connection) -> bool:
        """Return True if the server still has the session. Code can kill its first process."""
        with contextlib.suppress(BackendError):
            await connection.request(
                {"op": "drop", "session": self._session_number, "checkpoint_key": ""}
            )
            return True
        return False

    async def _recover(self, lost: Connection, error: BackendLost) -> str:
        if self._session_number != FIRST_SESSION:
            raise BackendLost(f"{error} The branch is lost. Call fork() again.") from error
        recovery = await super()._recover(lost, error)
        self._discard_checkpoints()
        return recovery

    # checkpoints and forks

    async def _checkpoint(
        self,
        given_name: str | None,
        lifetime: float | None,
        replace: bool,
        max_copied_bytes: int | None,
    ) -> Checkpoint:
        if self._docker.transfer == "copy":
            raise CheckpointError(
                'checkpoint() is not possible with transfer="copy": the work folder exists only in '
                'the container. Use transfer="bind".'
            )
        return await super()._checkpoint(given_name, lifetime, replace, max_copied_bytes)

    async def _fork_one(self, checkpoint: Checkpoint | None, max_copied_bytes: int | None) -> Self:
        assert self._workspace is not None
        self._require_connection()
        assert self._container_group is not None
        if obstacle := self._fork_obstacle():
            raise CheckpointError(_CANNOT_FORK.format(obstacle))
        branch, number, name = (
            self._new_branch(),
            next(self._container_group.session_numbers),
            secrets.token_hex(8),
        )
        folder = self._container_group.branches_dir / name
        source = checkpoint.snapshot if checkpoint is not None else self._workspace.path
        request = {
            "op": "fork",
            "session": self._session_number,
            "new_session": number,
            "mounts": _NO_MOUNTS,
            "delete": _NO_MOUNTS,
            "folder": f"{_BRANCHES_DIR}/{name}",
            "rollback_checkpoints": self._session.checkpoints,
            "checkpoint_key": checkpoint.key if checkpoint is not None else None,
        }
        try:
            await run_in_thread(
                _copy_folder, source, folder, self._workspace.path, max_copied_bytes
            )
            check_answer(await self._request_fork(request), CheckpointError)
        except BaseException:
            remove_tree(str(folder))
            raise
        branch._join_group(self, number, folder, str(request["folder"]))
        branch._block_count = checkpoint.blocks if checkpoint is not None else self._block_count
        return branch

    async def _request_fork(self, request: dict[str, Any]) -> dict[str, Any]:
        connection = self._require_connection()
        try:
            return (await connection.request(request))[0]
        except asyncio.CancelledError:
            if connection.is_open:  # the server still creates the session, so close it
                with contextlib.suppress(BackendError):
                    await connection.request({"op": "close", "session": request["new_session"]})
            raise

    def _new_branch(self) -> Self:
        branch = self._copy_with_work_dir(None)
        branch._docker = replace(self._docker, container_name=None)
        return branch

    def _join_group(
        self, other: DockerSessionCodeExecutor, number: int, folder: Path, branch_folder: str
    ) -> None:
        """Become a branch in the container of `other`."""
        assert other._container_group is not None
        self._container_group = other._container_group
        self._branch_dir = self._container_group.temp_dir()
        self._container_group.session_count += 1
        self._branch_dir.acquire()
        self._client, self._lifecycle = other._client, other._lifecycle
        self._backend, self._connection = other._backend, other._connection
        self._session_number, self._branch_folder = number, branch_folder
        self._temp_dir, self._temp_dir_removal = folder, TempDirRemoval(self, folder)
        self._workspace = Workspace(folder)
        self._mark_open()


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
) -> None:
    """Copy `source` to `target`, and give `target` the owner of `owner_of`."""
    target.mkdir(mode=0o700)
    snapshot.copy_folder(source, target, max_copied_bytes)
    status = os.stat(owner_of)
    if sys.platform == "win32":
        return
    with contextlib.suppress(PermissionError):  # without root, all files have the same owner anyway
        os.chown(target, status.st_uid, status.st_gid)
