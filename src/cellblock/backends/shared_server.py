"""One runtime server in a sandbox that several executors share.

Executors with the same settings share one server, as tenants. The first tenant starts it and the
last one ends it. Tenants share a process that carries their output, and the memory of an
interpreter in which no code of theirs has run; a tenant sees nothing of another one.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import os
import socket
import sys
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..environments.interpreter import Interpreter, create_environment, create_own_commands
from ..errors import BackendError, BackendLost, SandboxUnavailable, ServerFull
from ..limits import Limits
from ..policy import Policy
from ..runtime.linux.safe_folder import remove_tree
from .base import Backend
from .connection import Connection
from .protected_paths import ProtectedPath
from .sandbox import ENVIRONMENT, WORK_DIR, SandboxBackend, executor_mounts, sandbox_unavailable
from .scratch import create_scratch
from .transport import SharedTransport, Transport

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
        self._scratch: Path | None = None
        self._backend: SandboxBackend | None = None
        self._launched_by = 0  # the process ID of the process that started the server

    async def _launch(self, backend: SandboxBackend, work_dir: str) -> Connection:
        """Start the server: for tenants if `backend` has a listener, else for live sessions.

        Its own folders are outside of `work_dir`.
        """
        self._backend, self._launched_by = backend, os.getpid()
        self._scratch = create_scratch("cellblock-scratch-", work_dir)
        backend.scratch, backend.work_dir = str(self._scratch), str(self._scratch / "work")
        backend.delete = [backend.scratch]
        try:
            os.mkdir(backend.work_dir)
            self.populate_scratch(self._scratch)
            create_own_commands(
                self._scratch / "commands", backend.interpreter, f"{ENVIRONMENT}/bin/python"
            )
            self._connection = await backend.open()
        except BaseException:
            remove_tree(backend.scratch)
            raise
        return self._connection

    def populate_scratch(self, folder: Path) -> None:
        """Create the home and the Python environment of one executor in `folder`."""
        assert self._backend is not None
        os.makedirs(folder / "home")
        create_environment(
            folder / "env",
            self._backend.interpreter,
            self._backend.packages,
            visible_path=ENVIRONMENT,
        )

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
            if self._scratch is not None:
                remove_tree(str(self._scratch))
                self._scratch = None


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
    def mounts(self) -> list[dict[str, Any]]:
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
        key = self.group + _sharing_key(backend, [mount["source"] for mount in self.mounts])
        server = _find_server(key)
        try:
            return await server.connect(self, backend)
        except (SandboxUnavailable, ServerFull):
            raise
        except (BackendError, OSError) as error:
            if _needs_descriptors(error):
                raise ServerFull(_TOO_MANY_FILES) from error
            if isinstance(error, OSError):
                raise
            if not await server.is_exiting():
                raise await sandbox_unavailable(error) from error
        # The server exited while we connected. That says nothing about the next one.
        return await _find_server(key).connect(self, backend)


def _sharing_key(backend: SandboxBackend, own_paths: Sequence[str]) -> str:
    """Return a key that is equal only for backends that may share a server.

    `own_paths` are the paths that only this executor mounts.

    It contains all settings, and the device and inode of each path in them, since another file
    can take a path.
    """
    paths = [mount["source"] for mount in backend.settings["sandbox"]["mounts"]]
    identities = [(status.st_dev, status.st_ino) for status in map(os.stat, paths)]
    # Without control groups the kernel counts processes per user, and all tenants are one user: a
    # tenant could use up the limit of another.
    is_counted_per_user = (
        backend.limits.processes is not None and backend.settings["cgroups"] is None
    )
    exclusive = next(_exclusive_numbers) if is_counted_per_user else 0
    return json.dumps(
        [backend.settings, identities, _find_mounts(paths, own_paths), exclusive], sort_keys=True
    )


def _find_mounts(paths: Iterable[str], own_paths: Sequence[str]) -> list[str]:
    """Return the mounts below the paths, and those that contain `own_paths`.

    They are lines of /proc/self/mountinfo; see proc(5). A server does not see mounts that were made
    after its start.
    """
    with open("/proc/self/mountinfo") as file:
        lines = [(line.split(" ", 5)[4], line) for line in file]
    prefixes = tuple(f"{path}/" for path in (*paths, *own_paths))
    found = {line for target, line in lines if target.startswith(prefixes)}
    for path in own_paths:
        inside = f"{path}/"
        holders = [line for target, line in lines if inside.startswith(f"{target.rstrip('/')}/")]
        found.update(holders[-1:])  # a later mount covers an earlier one
    return sorted(found)


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
        self._listener: socket.socket | None = None
        self._removals = set[asyncio.Task[None]]()

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
                    await self._start(backend, tenant.work_dir)
            transport = SharedTransport(self._open_stream(), self._require_connection().transport)
            connection = SharedConnection(transport, self)
        except BaseException:
            await self.remove_tenant()
            raise
        await connection.open({"mounts": tenant.mounts, "delete": list(tenant.delete)})
        return connection

    async def _start(self, backend: SandboxBackend, work_dir: str) -> None:
        self.close_listener()
        self._listener, backend.listener = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with backend.listener:
            await self._launch(backend, work_dir)

    def _open_stream(self) -> socket.socket:
        """Send the server one end of a new stream and return the other."""
        assert self._listener is not None
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._listener, [_DESCRIPTOR_ONLY], [theirs.fileno()])
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

    def remove_collected_tenant(self, loop: asyncio.AbstractEventLoop) -> None:
        """Remove a tenant that was garbage-collected, in any thread. `loop` is the background loop.

        Do nothing in a child of the process that started the server.
        """
        if self._launched_by == os.getpid():
            loop.call_soon_threadsafe(self._begin_removal)

    def _begin_removal(self) -> None:
        removal = asyncio.ensure_future(self.remove_tenant())
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)

    def close_listener(self) -> None:
        """Close our end of the socket over which the server receives new streams."""
        if self._listener is not None:
            self._listener.close()


class SharedConnection(Connection):
    """A tenant's connection to its server."""

    def __init__(self, transport: Transport, server: TenantServer) -> None:
        super().__init__(transport)
        self._server = server
        # For executors that are garbage-collected without `stop`.
        self._removal = weakref.finalize(self, server.remove_collected_tenant, self._loop)
        self._removal.atexit = False

    async def close(self, *, keep: Sequence[str] = ()) -> None:
        """See `Connection`. The server deletes the paths of a tenant only when it ends itself."""
        self._removal.detach()
        try:
            await super().close(keep=keep)
        finally:
            await self._server.remove_tenant()


_servers: dict[str, TenantServer] = {}
_exclusive_numbers = itertools.count(1)


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
