"""One runtime server in a sandbox that several executors share.

Executors with the same settings share one server, as tenants. The first tenant starts it and the
last one ends it. Tenants share a process that carries their output, and the memory of an
interpreter in which no code of theirs has run; a tenant sees nothing of another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import sys
import weakref
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..aio.background_loop import background_loop
from ..environments.interpreter import Interpreter
from ..errors import BackendError, BackendLost, SandboxUnavailable, ServerFull
from ..limits import Limits
from ..policy import Policy
from ..runtime.linux.safe_folder import remove_tree
from ..runtime.messages import MountSpec, TenantSpec
from ..sandbox.probe import unavailable_reason
from .base import Backend
from .connection import Connection
from .protected_paths import ProtectedPath
from .sandbox import WORK_DIR, SandboxBackend, executor_mounts
from .sandbox_launch import SandboxLaunch, sharing_key, take_early
from .server_process import SandboxServerProcess
from .transport import ProcessTransport, SharedTransport, Transport

_MAX_TENANTS = 50  # of one server
# Seconds to wait for the server's own connection to close after a tenant's connection failed.
_EXIT_GRACE = 0.1
_TOO_MANY_FILES = (
    "This process has too many open files (RLIMIT_NOFILE). Raise `ulimit -n`, or use fewer "
    "executors."
)
_DESCRIPTOR_ONLY = b"g"  # recvmsg needs at least one byte to carry a descriptor


class SharedServer:
    """A runtime server, and the folders that its zygote sees instead of those of an executor.

    Belongs to the background loop.
    """

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self._launch: SandboxLaunch | None = None
        self._launched_by = 0  # the process ID of the process that started the server

    async def _connect_to(self, launch: SandboxLaunch) -> Connection:
        """Wait until a launched server is ready, and return the connection to it."""
        self._launch, self._launched_by = launch, os.getpid()
        connection = Connection(ProcessTransport(launch.server))
        try:
            await connection.wait_until_ready()
        except BaseException as error:
            launch.server.close_listener()
            remove_tree(str(launch.scratch))
            if isinstance(error, BackendError):
                raise await sandbox_unavailable(error) from error
            raise
        self._connection = connection
        return connection

    def populate_scratch(self, folder: Path) -> None:
        """Create the home and the Python environment of one executor in `folder`."""
        assert self._launch is not None
        self._launch.populate(folder)

    async def close(self) -> None:
        """End the server and everything that it runs.

        Do nothing if it does not run, or if this process is a child of the one that started it.
        """
        if self._launched_by != os.getpid():
            return
        connection, self._connection = self._connection, None
        try:
            if connection is not None:
                await connection.close()
        finally:
            if self._launch is not None:
                remove_tree(str(self._launch.scratch))
                self._launch = None

    def remove_collected(
        self, loop: asyncio.AbstractEventLoop, remove: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Call `remove` for a user that was garbage-collected, in any thread.

        `loop` is the background loop. Do nothing in a child of the process that started the server.
        """

        def begin() -> None:
            background_loop().keep(asyncio.ensure_future(remove()))

        if self._launched_by == os.getpid():
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(begin)


@dataclass(frozen=True)
class SharedSandboxBackend(Backend):
    """A sandbox for one executor, on a shared server. For the fields see `SandboxBackend`.

    protected   the paths in the work folder that blocks may not change
    group       executors with different groups do not share a server
    """

    work_dir: str
    scratch: str
    interpreter: Interpreter
    packages: tuple[str, ...]
    limits: Limits
    policy: Policy
    preload: tuple[str, ...]
    delete: Sequence[str]
    protected: Sequence[ProtectedPath] = ()
    inner_work_dir: str = WORK_DIR
    group: str = ""

    @property
    def mounts(self) -> list[MountSpec]:
        """The mounts of this executor only."""
        return executor_mounts(
            self.work_dir,
            self.scratch,
            self.policy,
            self.protected,
            work_dir_target=self.inner_work_dir,
        )

    async def open(self) -> Connection:
        """See `Backend`. Raise `SandboxUnavailable` if this machine cannot run the sandbox."""
        backend = SandboxBackend(
            self.interpreter,
            self.packages,
            self.limits,
            self.policy,
            self.preload,
            inner_work_dir=self.inner_work_dir,
        )
        key = self.group + sharing_key(backend, [mount.source for mount in self.mounts])
        server = _find_server(key)
        try:
            return await server.connect(self, backend)
        except (SandboxUnavailable, ServerFull):
            raise
        except (BackendError, OSError) as error:
            if _needs_descriptors(error):
                raise ServerFull(_TOO_MANY_FILES) from error
            if not isinstance(error, BackendError):
                raise
            if not await server.is_exiting():
                raise await sandbox_unavailable(error) from error
        # The server exited while we connected. That says nothing about the next one.
        return await _find_server(key).connect(self, backend)


def _find_server(key: str) -> TenantServer:
    server = _servers.get(key)
    if server is None or server.has_exited or server.is_full:
        server = _servers[key] = TenantServer(key)
    return server


class TenantServer(SharedServer):
    """The server of all executors with the same `key`."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self._key = key
        self._tenant_count = 0
        self._starting = asyncio.Lock()

    @property
    def has_exited(self) -> bool:
        """Whether the server was started and has exited."""
        return self._connection is not None and not self._connection.is_open

    @property
    def is_full(self) -> bool:
        """Whether the next tenant needs another server: one process carries all output."""
        return self._tenant_count >= _MAX_TENANTS

    async def is_exiting(self) -> bool:
        """Return True if the server has exited, or exits within a moment."""
        if not self.has_exited:
            await asyncio.sleep(_EXIT_GRACE)
        return self.has_exited

    async def connect(self, tenant: SharedSandboxBackend, backend: SandboxBackend) -> Connection:
        """Return a new connection for `tenant`. Raise `BackendError`.

        The first tenant starts the server, with the settings of `backend`.
        """
        self._tenant_count += 1
        try:
            async with self._starting:
                if self._connection is None:
                    await self._connect_to(
                        take_early(self._key)
                        or SandboxLaunch(backend, tenant.work_dir, SandboxServerProcess())
                    )
            transport = SharedTransport(self._open_stream(), self._require_connection().transport)
            connection = SharedConnection(transport, self)
        except BaseException:
            await self.remove_tenant()
            raise
        await connection.open(TenantSpec(tuple(tenant.mounts), tuple(tenant.delete)))
        return connection

    def _open_stream(self) -> socket.socket:
        """Send the server one end of a new stream and return the other."""
        assert self._launch is not None
        assert self._launch.server.listener is not None
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._launch.server.listener, [_DESCRIPTOR_ONLY], [theirs.fileno()])
            except OSError as error:
                ours.close()
                raise BackendLost("The runtime server has exited.") from error
        return ours

    def _require_connection(self) -> Connection:
        assert self._connection is not None
        return self._connection

    async def remove_tenant(self) -> None:
        """Remove a tenant that has closed its connection. End the server after the last one."""
        self._tenant_count -= 1
        if self._tenant_count == 0:
            if _servers.get(self._key) is self:
                del _servers[self._key]
            self.close_listener()
            await self.close()

    def close_listener(self) -> None:
        """Close our end of the socket over which the server receives new streams."""
        if self._launch is not None:
            self._launch.server.close_listener()


class SharedConnection(Connection):
    """A tenant's connection to its server."""

    def __init__(self, transport: Transport, server: TenantServer) -> None:
        super().__init__(transport)
        self._server = server
        # For executors that are garbage-collected without `stop`.
        self._removal = weakref.finalize(
            self, server.remove_collected, self._loop, server.remove_tenant
        )
        self._removal.atexit = False

    async def close(self, *, keep: Sequence[str] = ()) -> None:
        """See `Connection`. The server deletes the paths of a tenant only when it ends itself."""
        self._removal.detach()
        try:
            await super().close(keep=keep)
        finally:
            await self._server.remove_tenant()


_servers: dict[str, TenantServer] = {}


def _close_listeners_in_child() -> None:
    # The copy in a child keeps no server alive, but nothing else would close the descriptor.
    for server in _servers.values():
        server.close_listener()
    _servers.clear()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_close_listeners_in_child)


def _needs_descriptors(error: BaseException | None) -> bool:
    """Return True if this process has no descriptor left, which caused `error`."""
    while error is not None:
        if isinstance(error, OSError) and error.errno == errno.EMFILE:
            return True
        error = error.__cause__
    return False


async def sandbox_unavailable(error: BackendError) -> SandboxUnavailable:
    """Return an error that adds to `error` what this machine lacks and what to do."""
    return SandboxUnavailable(
        await asyncio.to_thread(_unavailable_text, str(error)),
        "Cellblock never silently weakens the protection: pass isolation='landlock', or use "
        "LocalCommandLineCodeExecutor, which has none.",
    )


def _unavailable_text(error: str) -> str:
    return "\n".join(
        [
            f"The sandbox cannot be started on this machine. {error}",
            unavailable_reason()
            or "Each feature that it needs works in a separate test. Try again, or report a bug.",
            "Run `cellblock doctor` to see what this machine supports.",
        ]
    )
