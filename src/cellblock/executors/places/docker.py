"""DockerPlace: run blocks in a container of a Docker-compatible engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from ...aio.shielded import run_to_end
from ...backends.base import Backend
from ...backends.connection import Connection
from ...backends.container import ContainerBackend
from ...backends.module_bundle import compiled_modules
from ...backends.protected_paths import ProtectedPath, find_protected_paths
from ...cancellation import Token
from ...containers import users
from ...containers.client import EngineClient, connect
from ...containers.guarantees import ContainerSettings, container_guarantees
from ...containers.image_packages import image_with_packages
from ...containers.lifecycle import ContainerLifecycle
from ...containers.spec import ContainerSpec
from ...errors import BackendError, BackendLost, PackageError
from ...events import Event, PullProgress
from ...languages import Language
from ...runtime import protocol
from ...runtime.handshake import CellJob
from ...runtime.messages import BlockRequest, Ending, RunProgram, RunRequest
from ...runtime.protocol import Frame
from ...sandbox.guarantees import Guarantee
from ..settings import Config, to_config
from ..workspace.cleanup_watchdog import CleanupWatchdog
from .base import OnInput, Place
from .docker_file_sync import FileSync
from .docker_settings import DockerSettings
from .settings import PlaceSettings

_log = logging.getLogger(__name__)
_SERVER_RESTARTED = "all processes in the container were killed and the server was restarted"
_CONTAINER_RESTARTED = "the container was restarted"
_CONTAINER_REPLACED = (
    "the container was missing and was replaced by a new one, "
    "without the files that were created outside the work folder"
)


class DockerPlace(Place):
    """See `DockerCommandLineCodeExecutor`.

    Set before the start by what an executor is a part of:

    recovers   a server that is lost during a block is replaced
    """

    recovers = True
    # The server can run on another machine and as another user.
    server_writes_files = False

    def __init__(self, settings: PlaceSettings, docker: DockerSettings) -> None:
        super().__init__(settings)
        self.docker = docker

    def _init_state(self) -> None:
        super()._init_state()
        self._client: EngineClient | None = None
        self._image = ""  # the requested image, or the derived image with packages
        self._lifecycle: ContainerLifecycle | None = None
        self._backend: ContainerBackend | None = None
        self._file_sync: FileSync | None = None
        self._watchdog: CleanupWatchdog | None = None  # for a temporary work folder
        self._watch_task: asyncio.Task[None] | None = None
        self._last_recovery = ""  # what happened to the container when its server was last lost
        # Callers that wait for the start and receive its progress events.
        self._start_listeners = set[asyncio.Queue[Event | None]]()

    @property
    def container(self) -> str | None:
        """The name of the current container, or `None` if none is running."""
        return None if self._backend is None else self._backend.container.name

    @property
    def has_network(self) -> bool:
        """See `Place`."""
        return self.docker.network != "none"

    def guarantees(self) -> tuple[Guarantee, ...]:
        """See `Place`. More is known of an open place."""
        options = self.docker
        settings = ContainerSettings(
            limits=self.limits,
            network=options.network,
            read_only=options.read_only,
            folders=("the work folder", *options.extra_volumes),
            variables=tuple(options.environment),
            create_kwargs=options.create_kwargs,
            runtime=options.runtime,
            client=self._client,
        )
        return container_guarantees(settings)

    # the container

    async def start_events(
        self, start: Callable[[], Coroutine[Any, Any, None]]
    ) -> AsyncGenerator[Event, None]:
        """See `Place`. The events are the progress of a pull."""
        events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._start_listeners.add(events)
        starting = asyncio.create_task(start())
        starting.add_done_callback(lambda _starting: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
        finally:
            self._start_listeners.discard(events)
            if not starting.done():
                starting.cancel()
                await run_to_end(asyncio.wait([starting]))
        await starting

    def _on_pull(self, progress: PullProgress) -> None:
        for events in self._start_listeners:
            events.put_nowait(progress)
        if (on_pull := self.docker.on_pull) is not None:
            on_pull(progress)

    async def open(self, load_functions: Callable[[], Awaitable[None]] | None = None) -> None:
        """See `Place`."""
        try:
            await super().open(load_functions)
        except BaseException:
            await self._release_container(restarting=False)
            if self._watchdog is not None:  # the folder is there for another start
                watchdog, self._watchdog = self._watchdog, None
                watchdog.cancel()
            raise

    async def _finish_opening(self, load_functions: Callable[[], Awaitable[None]] | None) -> None:
        await super()._finish_opening(load_functions)
        if self._protects_startup_files:
            await asyncio.to_thread(self.workspace.record_startup_files, undo_git_files=True)

    async def _make_backend(self, packages: tuple[str, ...], delete: list[str]) -> Backend:
        if self._temp_dir is not None and self._watchdog is None and not self._keeps_container:
            # Not in a thread: a cancellation halfway would lose the process.
            self._watchdog = CleanupWatchdog(self._temp_dir)
        # Compile the runtime's modules in a thread while Docker is busy.
        asyncio.get_running_loop().run_in_executor(None, compiled_modules)
        self._client = client = await connect()
        self._recovery_lock = asyncio.Lock()
        options = self.docker
        self._image = options.image
        if packages:
            self._image = await image_with_packages(
                client, self._image, packages, options.wheels, on_pull=self._on_pull
            )
        spec = self._container_spec(client)
        self._lifecycle = ContainerLifecycle(
            client,
            spec,
            options.container_name,
            stop_container=options.stop_container,
            init_command=options.init_command,
            on_pull=self._on_pull,
        )
        container = await self._lifecycle.acquire()
        if options.transfer == "copy":
            self._file_sync = FileSync(container, self.workspace, spec.user)
            await self._file_sync.open_work_dir()
        self._backend = ContainerBackend(
            container,
            self.limits,
            self.docker.preload,
            stop_on_disconnect=not self._keeps_container,
            has_filter=spec.has_filter,
            gvisor=spec.gvisor,
            cwd=self.inner_work_dir,
        )
        return self._backend

    @property
    def bind_dir(self) -> Path:
        """The work folder's path on the engine's machine."""
        return self.docker.bind_dir or Path(self.work_dir)

    @property
    def _protects_startup_files(self) -> bool:
        """Whether the caller's folder is mounted, with files that other programs run later."""
        return self.settings.work_dir is not None and self.docker.transfer == "bind"

    def _find_protected(self) -> tuple[ProtectedPath, ...]:
        """Return the startup files in the work folder, which blocks may not change."""
        if not self._protects_startup_files:
            return ()
        found = find_protected_paths(str(self.workspace.path))
        self.workspace.read_only = tuple(path for path, is_writable in found if not is_writable)
        return found

    def _container_spec(self, client: EngineClient) -> ContainerSpec:
        options = self.docker
        extra, is_mounted = options.create_kwargs, options.transfer == "bind"
        if is_mounted:
            extra = {
                **extra,
                "HostConfig": {**users.userns_config(client), **extra.get("HostConfig", {})},
            }
        user = options.user or users.container_user(client, self.work_dir)
        if self._temp_dir is not None:
            users.chown_to_container_user(self._temp_dir, client, user)
        return ContainerSpec(
            image=self._image,
            user=user,
            limits=self.limits,
            work_dir=str(self.docker.bind_dir or self.workspace.path) if is_mounted else None,
            protected=self._find_protected(),
            network=options.network,
            environment=options.environment,
            ports=options.ports,
            volumes=options.extra_volumes,
            hosts=options.extra_hosts,
            devices=options.device_requests,
            runtime=options.runtime,
            gvisor=client.is_gvisor(options.runtime),
            read_only=options.read_only,
            private_home=not client.is_podman,  # Podman cannot set the owner of a tmpfs
            enforces_limits=client.enforces_limits,
            auto_remove=options.auto_remove,
            extra=extra,
        )

    async def _install_packages(self, required: tuple[str, ...]) -> tuple[str, ...]:
        """Return `required` unchanged: `_make_backend` installs the packages into the image."""
        return required

    @property
    def _keeps_container(self) -> bool:
        """Whether `stop` keeps the container, and so its work folder, for a later start."""
        return not (self.docker.auto_remove and self.docker.stop_container)

    async def close(self, *, restarting: bool) -> None:
        """See `Place`."""
        if self._watch_task is not None:
            self._watch_task.cancel()
        if self._keeps_container and self._temp_dir_removal is not None:
            self._temp_dir_removal.cancel()
        try:
            await super().close(restarting=restarting or self._keeps_container)
        finally:
            await self._release_container(restarting=restarting)
            if self._watchdog is not None and not restarting:
                watchdog, self._watchdog = self._watchdog, None
                await asyncio.to_thread(watchdog.remove)

    async def _release_container(self, *, restarting: bool) -> None:
        lifecycle, self._lifecycle, self._backend, self._file_sync = (
            self._lifecycle,
            None,
            None,
            None,
        )
        client, self._client = self._client, None
        if lifecycle is not None:
            await lifecycle.release(restarting=restarting)
        if client is not None:
            await client.close()

    def to_config(self) -> Config:
        """See `Place`."""
        config = {**super().to_config(), **to_config(self.docker)}
        config["delete_tmp_files"] = config.pop("cleanup_temp_files")
        return config

    # blocks

    def command(self, language: Language, name: str) -> CellJob:
        """See `Place`."""
        path = self.path_in_backend(name)
        if language.name == "python":
            return CellJob(path)
        return CellJob(argv=(*(language.argv or ()), path))

    def path_in_backend(self, name: str) -> str:
        """See `Place`."""
        return f"{self.inner_work_dir}/{name}"

    def shown_path(self, name: str) -> str:
        """See `Place`. With a relative `work_dir` it is relative too, as in AutoGen."""
        folder = self.settings.work_dir
        if folder is None or folder.is_absolute():
            return super().shown_path(name)
        return str(folder / name)

    async def frames(
        self, request: BlockRequest, token: Token | None = None, on_input: OnInput | None = None
    ) -> AsyncGenerator[Frame, None]:
        """See `Place`. If the server is lost, replace it, and end the block."""
        connection, begun = self.require_connection(), time.monotonic()
        self.watch_server()
        try:
            if self._file_sync is not None:
                await self._file_sync.upload()
            async with contextlib.aclosing(
                connection.run(request, token, on_input=on_input)
            ) as frames:
                async for frame in frames:
                    if self._file_sync is not None and frame.kind == protocol.ENDED:
                        await self._file_sync.download()
                    yield frame
        except BackendLost as error:
            recovery = await self._recover(connection, error)
            yield server_lost_frame(request, time.monotonic() - begun, recovery)

    def watch_server(self) -> None:
        """See `Place`. Its machine can be lost without a word."""
        if self._watch_task is None or self._watch_task.done():
            self._watch_task = asyncio.create_task(self.require_connection().monitor())

    def has_lost_server(self) -> bool:
        """See `Place`."""
        return False  # `_recover` replaces the server during a block

    async def _recover(self, lost: Connection, error: BackendLost) -> str:
        """Replace a server that ended or does not answer, and return what was done.

        Raise `BackendLost` if no new server can be started.
        """
        if not self.recovers:
            raise error
        async with self._recovery_lock:
            if self.connection is None:  # `stop` was called while the block ran
                raise error
            if self.connection is not lost:  # another block has already recovered it
                return self._last_recovery
            lifecycle, backend = self._lifecycle, self._backend
            try:
                if lifecycle is None or backend is None:
                    raise error
                try:
                    started = await _start_new_server(lifecycle, backend)
                    self.connection, self._last_recovery = started
                    _log.info("%r: %s", self, self._last_recovery)
                finally:
                    with contextlib.suppress(BackendError):
                        await lost.close()
                if self._last_recovery == _CONTAINER_REPLACED and self._file_sync is not None:
                    await self._file_sync.open_work_dir()
            except (BackendError, PackageError) as failure:
                raise BackendLost(
                    f"{error} The container could not be restarted: {failure} "
                    "Call restart() to get a new one."
                ) from failure
            return self._last_recovery


async def _start_new_server(
    lifecycle: ContainerLifecycle, backend: ContainerBackend
) -> tuple[Connection, str]:
    """Start a new server in the container or in its replacement, and return what was done.

    Raise `BackendError`. Docker's own restart is the second choice: a busy engine can process the
    exit of the old container late, take it for the exit of the new one, and then remove that,
    because of `auto_remove`.
    """
    # It fails if the container has ended or has reached its process limit.
    with contextlib.suppress(BackendError):
        await lifecycle.reset_processes()
        return await backend.open(), _SERVER_RESTARTED
    # It fails if the engine has removed the container, because code ended its process 1.
    with contextlib.suppress(BackendError):
        await lifecycle.restart()
        return await backend.open(), _CONTAINER_RESTARTED
    is_new = await lifecycle.restart(or_recreate=True)
    return await backend.open(), _CONTAINER_REPLACED if is_new else _CONTAINER_RESTARTED


def server_lost_frame(
    request: BlockRequest, seconds: float, recovery: str, lost_blocks: int = 0
) -> Frame:
    """Return the last frame of a block whose server was lost. `recovery` says what was done.

    A session has also lost the variables of `lost_blocks` earlier blocks.
    """
    terms = request.request.terms if isinstance(request, RunProgram) else request.terms
    is_timeout = terms.wall_seconds is not None and seconds >= terms.wall_seconds
    ending = Ending(
        status=None,
        why="wall_seconds" if is_timeout else None,
        wall=seconds,
        cpu=0.0,
        peak=0,
        queued=0.0,
        session=None if isinstance(request, RunRequest) else "new",
        lost=lost_blocks,
        error=f"The runtime server stopped responding: {recovery}.",
    )
    (frame,) = protocol.Decoder().feed(ending.encode(0))
    return frame
