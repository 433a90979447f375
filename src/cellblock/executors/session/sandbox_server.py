"""SandboxSessionServer: a warmed-up runtime server that live sessions are forked from."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Self

from ...aio.background_loop import LoopEnded, background_loop
from ...aio.shielded import run_to_end
from ...backends.connection import Connection
from ...backends.other_systems import check_sandbox_system
from ...backends.sandbox import WORK_DIR, SandboxBackend
from ...backends.sandbox_launch import SandboxLaunch, sharing_key
from ...backends.server_process import SandboxServerProcess
from ...backends.shared_server import SharedServer
from ...backends.umask import check_umask
from ...environments.virtualenv import environment_for, find_interpreter, site_packages
from ...errors import BackendError, BackendLost
from ...limits import SANDBOX_LIMITS, Limits
from ...policy import Policy
from ...runtime.linux.safe_folder import remove_tree
from ...runtime.session_orders import CloseSession
from ...runtime.spec import SubIds
from ..argument_checks import check_limits, check_policy, check_strings, check_virtual_env

_MAX_SESSIONS = 50  # of one server, which carries all their output


class SessionServer(SharedServer):
    """The runtime server of one or more sessions.

    stop_with_last_session   close the server when its last session is removed: for `join`
    inner_work_dir           the path of each session's work folder, as blocks see it
    sub_ids                  the other users of its sessions, or why they have one user
    """

    def __init__(
        self,
        *,
        packages: Sequence[str] = (),
        limits: Limits = SANDBOX_LIMITS,
        policy: Policy | None = None,
        preload: Sequence[str] = (),
        virtual_env_context: SimpleNamespace | None = None,
        stop_with_last_session: bool = False,
        inner_work_dir: str = WORK_DIR,
        sub_ids: SubIds | str = "",
    ) -> None:
        super().__init__()
        self.packages = check_strings("packages", packages)
        self.preload = check_strings("preload", preload)
        self.limits = check_limits(limits, SANDBOX_LIMITS)
        self.policy = check_policy(policy)
        environment = check_virtual_env(virtual_env_context)
        self._python = None if environment is None else str(environment.env_exe)
        self.inner_work_dir, self._sub_ids = inner_work_dir, sub_ids
        self._numbers = itertools.count(1)
        self._session_count = 0
        self._starting = asyncio.Lock()
        self._backend: SandboxBackend | None = None
        self._stop_with_last_session = stop_with_last_session

    async def join(
        self, more_packages: Sequence[str], own_paths: Sequence[str], group: str
    ) -> SessionServer:
        """Return the server of all sessions with these settings; this one if there is none yet.

        Count a session more there. `own_paths` are the paths that only the caller's session mounts.
        Sessions with different `group` do not share a server. Raise the errors that starting an
        executor raises.
        """
        self._backend = await self._make_backend(more_packages)
        key = group + sharing_key(self._backend, own_paths, has_tenants=False)
        server = _joined.get(key)
        if server is None or not server.can_be_joined:
            server = _joined[key] = self
        server.add_session()
        return server

    @property
    def can_be_joined(self) -> bool:
        """Whether the server has a place for a session, and has not ended and will not soon."""
        has_ended = self._connection is not None and not self._connection.is_open
        return 0 < self._session_count < _MAX_SESSIONS and not has_ended

    async def open(self, work_dir: str | None = None) -> Connection:
        """Return the connection to the server. The first call starts the server.

        Its own folders are outside of `work_dir`. If that is not known yet, they are outside of
        the folder for temporary files, because a session can have that as its work folder.

        Raise the errors that starting an executor raises.
        """
        check_sandbox_system()
        check_umask()
        async with self._starting:
            if self._connection is None:
                backend = self._backend or await self._make_backend(())
                server = SandboxServerProcess(has_tenants=False)
                launch = SandboxLaunch(backend, work_dir or tempfile.gettempdir(), server)
                return await self._connect_to(launch)
        if not self._connection.is_open:
            raise BackendLost(
                "The server of this session has ended. Stop all its sessions, then start it again."
            )
        return self._connection

    async def _make_backend(self, more_packages: Sequence[str]) -> SandboxBackend:
        interpreter = await find_interpreter(self._python)
        required = (*self.packages, *more_packages)
        added = (
            (str(site_packages(await environment_for(required, python=self._python))),)
            if required
            else ()
        )
        shown = (*added, *interpreter.packages)
        if not replace(interpreter, packages=shown).has_package("IPython"):
            raise BackendError(
                f"Sessions need IPython, which {self._python or sys.executable} does not have. "
                "Install it there with pip install ipython, or pass packages=['ipython']."
            )
        return SandboxBackend(
            interpreter,
            shown,
            self.limits,
            self.policy,
            self.preload,
            inner_work_dir=self.inner_work_dir,
            sub_ids=self._sub_ids,
        )

    def next_session_number(self) -> int:
        """Return a new session number."""
        return next(self._numbers)

    def add_session(self) -> None:
        """Count a new session."""
        self._session_count += 1

    async def close_session(self, connection: Connection, number: int, scratch: Path) -> None:
        """Close a session that the server has created, count it no more, and remove its folder."""
        try:
            if connection.is_open:
                with contextlib.suppress(BackendError):  # its cell can have ended before
                    await connection.request(CloseSession(number))
            await self.remove_session()
        finally:
            await asyncio.to_thread(remove_tree, str(scratch))

    async def remove_session(self) -> None:
        """Count a session that has ended. After its last one, a server that was joined closes."""
        self._session_count -= 1
        if self._stop_with_last_session and self._session_count == 0:
            await self.close()


# The references of sessions keep a server here: it is removed with its last session.
_joined: weakref.WeakValueDictionary[str, SessionServer] = weakref.WeakValueDictionary()


class SandboxSessionServer:
    """A server for many sessions with the same Python, packages, limits, policy and `preload`.

    Its start takes as long as Python needs to import IPython and the modules in `preload`. A
    session on it starts in milliseconds and shares the memory of these modules. `async with` starts
    and stops the server, with all its sessions.

    For the parameters see `SandboxCommandLineCodeExecutor`.
    """

    def __init__(
        self,
        *,
        packages: Sequence[str] = (),
        limits: Limits = SANDBOX_LIMITS,
        policy: Policy | None = None,
        preload: Sequence[str] = (),
        virtual_env_context: SimpleNamespace | None = None,
    ) -> None:
        self.runtime_server = SessionServer(
            packages=packages,
            limits=limits,
            policy=policy,
            preload=preload,
            virtual_env_context=virtual_env_context,
        )

    async def __aenter__(self) -> Self:
        try:
            await background_loop().call(self.runtime_server.open())
        except asyncio.CancelledError:
            await (
                self._close()
            )  # it may have started in spite of that, and nothing calls `__aexit__`
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        with contextlib.suppress(LoopEnded):
            await background_loop().call(run_to_end(self.runtime_server.close()))
