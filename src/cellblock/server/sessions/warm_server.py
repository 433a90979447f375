"""WarmServer: a warmed-up server that sandboxed sessions are forked from."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path, PurePosixPath

from ...aio.background_loop import background_loop
from ...aio.shielded import run_to_end
from ...environments.virtualenv import context_of, session_packages
from ...executors.session.sandbox_server import SandboxSessionServer, SessionServer
from ...policy import Policy
from ..refusals import PolicyNotSupported
from ..settings import ServedSettings
from . import package_shim
from .files import DATA_DIR


class _SessionServer(SessionServer):
    """A server whose sessions can import `pkg_resources`, which AutoGen asks for first."""

    def populate_scratch(self, folder: Path) -> None:
        super().populate_scratch(folder)
        assert self._launch is not None
        package_shim.install(folder / "env", self._launch.backend.packages)

    def is_lost(self) -> bool:
        """Return True if the server was started and has ended without being stopped."""
        return self._connection is not None and not self._connection.is_open

    def has_sessions(self) -> bool:
        """Return True if the server has sessions."""
        return self._session_count > 0


class WarmServer:
    """The server of sessions with the same settings. It starts on first use.

    Raise `PolicyNotSupported` for a policy with another folder at /mnt/data.
    """

    def __init__(self, settings: ServedSettings) -> None:
        check_mounts(settings.policy)
        self._settings = settings
        self._server: SandboxSessionServer | None = None
        self._runtime_server: _SessionServer | None = None
        self._lock = asyncio.Lock()
        self._used_at = time.monotonic()

    async def get(self) -> SandboxSessionServer:
        """Return the running server, a new one if it was lost. Raise what starting it raises."""
        async with self._lock:
            self._used_at = time.monotonic()
            if self._runtime_server is not None and self._runtime_server.is_lost():
                await self._close()
            return self._server or await self._start()

    async def stop_if_idle(self, seconds: float) -> None:
        """Stop the server if it had no session for so many seconds. `get` starts it again."""
        async with self._lock:
            if self._runtime_server is not None and self._runtime_server.has_sessions():
                self._used_at = time.monotonic()
            elif time.monotonic() >= self._used_at + seconds:
                await self._close()

    async def stop(self) -> None:
        """Stop the server, with its sessions."""
        async with self._lock:
            await self._close()

    async def _start(self) -> SandboxSessionServer:
        settings = self._settings
        server = SandboxSessionServer()
        runtime_server = server.runtime_server = _SessionServer(
            packages=await asyncio.to_thread(session_packages, settings.env, settings.packages),
            limits=settings.limits,
            policy=settings.policy,
            preload=settings.preload,
            virtual_env_context=None if settings.env is None else context_of(settings.env),
            inner_work_dir=DATA_DIR,
        )
        try:
            await background_loop().call(runtime_server.open())
        except asyncio.CancelledError:  # it may have started in spite of that
            await background_loop().call(runtime_server.close())
            raise
        self._server, self._runtime_server = server, runtime_server
        return server

    async def _close(self) -> None:
        server, self._server, self._runtime_server = self._runtime_server, None, None
        if server is not None:
            await background_loop().call(run_to_end(server.close()))


def check_mounts(policy: Policy) -> None:
    """Raise `PolicyNotSupported` if a mount would hide the folder of the session."""
    for mount in (*policy.mounts(writable=False), *policy.mounts(writable=True)):
        if PurePosixPath(DATA_DIR).is_relative_to(mount.target_path):
            raise PolicyNotSupported(
                f"The policy has {mount.source} at {mount.target_path}, but sessions have their "
                f"own files at {DATA_DIR}. Use another target."
            )
