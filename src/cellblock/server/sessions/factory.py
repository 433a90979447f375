"""SessionFactory: make the executor of each session, on a shared warmed-up server if possible."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from ...aio.background_loop import background_loop
from ...executors.command_line.docker import IMAGE
from ...executors.session.sandbox_server import SandboxSessionServer, SessionServer
from ...executors.workspace.cleanup_watchdog import CleanupWatchdog
from ...policy import Mount
from ..settings import SessionSettings
from . import package_shim
from .executors import DATA_DIR, ServedDockerSession, ServedSandboxSession, ServedSession


class _SessionServer(SessionServer):
    """A server whose sessions can import `pkg_resources`, which AutoGen asks for first."""

    def populate_scratch(self, folder: Path) -> None:
        super().populate_scratch(folder)
        assert self._backend is not None
        package_shim.install(folder / "env", self._backend.packages)

    def is_lost(self) -> bool:
        """Return True if the server was started and has ended by itself."""
        return self._connection is not None and not self._connection.is_open


class _TemporaryDir:
    """A folder that is removed by `remove`, or soon after this process was killed."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="cellblock-data-"))
        # Users of containers may pass through to their own folder, but not list this one.
        self.path.chmod(0o711)
        self._watchdog = CleanupWatchdog(self.path)

    async def remove(self) -> None:
        """Remove the folder with its contents."""
        await asyncio.to_thread(self._watchdog.remove)


class SandboxSessions:
    """Sessions in the sandbox, forked from one warmed-up server. Use it with `async with`."""

    def __init__(self, settings: SessionSettings) -> None:
        self._settings = settings
        self._hidden_dir: _TemporaryDir | None = None  # empty; hidden by each session's own folder
        self._server: SandboxSessionServer | None = None
        self._runtime_server: _SessionServer | None = None
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> SandboxSessions:
        self._hidden_dir = _TemporaryDir()
        try:
            await self._start_server()
        except BaseException:
            await self._hidden_dir.remove()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._stop_server()
        assert self._hidden_dir is not None
        await self._hidden_dir.remove()

    async def make(self) -> ServedSandboxSession:
        """Return a session that is not started yet. Raise what starting a server raises."""
        async with self._lock:
            if self._runtime_server is None or self._runtime_server.is_lost():
                await self._stop_server()
                await self._start_server()
        return ServedSandboxSession(self._settings.run_seconds, server=self._server)

    async def _start_server(self) -> None:
        settings = self._settings
        assert self._hidden_dir is not None
        data_mount = Mount(str(self._hidden_dir.path), DATA_DIR)
        policy = replace(settings.policy, read_write=(*settings.policy.read_write, data_mount))
        server = SandboxSessionServer()
        runtime_server = server.runtime_server = _SessionServer(
            packages=settings.packages,
            limits=settings.limits,
            policy=policy,
            preload=settings.preload,
        )
        await background_loop().call(runtime_server.open())
        self._server, self._runtime_server = server, runtime_server

    async def _stop_server(self) -> None:
        server, self._server, self._runtime_server = self._runtime_server, None, None
        if server is not None:
            await background_loop().call(server.close())


class DockerSessions:
    """Sessions in a container each. Use it with `async with`."""

    def __init__(self, settings: SessionSettings) -> None:
        self._settings = settings
        self._work_dirs: _TemporaryDir | None = None

    async def __aenter__(self) -> DockerSessions:
        self._work_dirs = _TemporaryDir()
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Remove the folders. Each session removes its container."""
        assert self._work_dirs is not None
        await self._work_dirs.remove()

    async def make(self) -> ServedDockerSession:
        """Return a session that is not started yet."""
        assert self._work_dirs is not None
        settings = self._settings
        work_dir = tempfile.mkdtemp(prefix="cellblock-work-", dir=self._work_dirs.path)
        return ServedDockerSession(
            settings.image or IMAGE,
            timeout=settings.run_seconds,
            work_dir=work_dir,
            extra_volumes={work_dir: {"bind": DATA_DIR, "mode": "rw"}},
            packages=settings.packages,
            limits=settings.limits,
            network="bridge" if settings.policy.network == "host" else "none",
            delete_tmp_files=True,
        )


SessionFactory = SandboxSessions | DockerSessions


def session_factory(settings: SessionSettings) -> SessionFactory:
    """Return the factory that `settings` name."""
    return SandboxSessions(settings) if settings.executor == "sandbox" else DockerSessions(settings)


async def discard(executor: ServedSession) -> None:
    """Stop a session and remove its folder."""
    await executor.stop()
    if isinstance(executor, ServedDockerSession):
        await asyncio.to_thread(shutil.rmtree, executor.work_dir, ignore_errors=True)
