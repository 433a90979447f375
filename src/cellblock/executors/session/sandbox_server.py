"""SandboxSessionServer: a warmed-up runtime server that live sessions are forked from."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace, TracebackType
from typing import Self

from ...aio.background_loop import LoopEnded, background_loop
from ...aio.shielded import run_to_end
from ...backends.connection import Connection
from ...backends.other_systems import check_sandbox_system
from ...backends.sandbox import WORK_DIR, SandboxBackend
from ...backends.sandbox_launch import SandboxLaunch
from ...backends.server_process import SandboxServerProcess
from ...backends.shared_server import SharedServer
from ...backends.umask import check_umask
from ...environments.virtualenv import environment_for, find_interpreter, site_packages
from ...errors import BackendError, BackendLost
from ...limits import SANDBOX_LIMITS, Limits
from ...policy import Policy
from ..argument_checks import check_limits, check_policy, check_strings, check_virtual_env


class SessionServer(SharedServer):
    """The runtime server of one or more sessions.

    stop_with_last_session   close the server when its last session is removed
    inner_work_dir           the path of each session's work folder, as blocks see it
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
    ) -> None:
        super().__init__()
        self.packages = check_strings("packages", packages)
        self.preload = check_strings("preload", preload)
        self.limits = check_limits(limits, SANDBOX_LIMITS)
        self.policy = check_policy(policy)
        environment = check_virtual_env(virtual_env_context)
        self._python = None if environment is None else str(environment.env_exe)
        self.inner_work_dir = inner_work_dir
        self._numbers = itertools.count(1)
        self._session_count = 0
        self._stop_with_last_session = stop_with_last_session

    async def open(
        self, more_packages: Sequence[str] = (), work_dir: str | None = None
    ) -> Connection:
        """Return the connection to the server. The first call starts the server.

        Its own folders are outside of `work_dir`. If that is not known yet, they are outside of
        the folder for temporary files, because a session can have that as its work folder.

        Raise the errors that starting an executor raises.
        """
        check_sandbox_system()
        check_umask()
        if self._connection is not None:
            if not self._connection.is_open:
                raise BackendLost(
                    "The server of this session has ended. Stop all its sessions, then start it "
                    "again."
                )
            return self._connection
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
        backend = SandboxBackend(
            interpreter,
            shown,
            self.limits,
            self.policy,
            self.preload,
            inner_work_dir=self.inner_work_dir,
        )
        server = SandboxServerProcess(has_tenants=False)
        return await self._connect_to(
            SandboxLaunch(backend, work_dir or tempfile.gettempdir(), server)
        )

    def next_session_number(self) -> int:
        """Return a new session number."""
        return next(self._numbers)

    def add_session(self) -> None:
        """Count a new session."""
        self._session_count += 1

    async def remove_session(self) -> None:
        """Count a session that has ended. A private server closes after its last session."""
        self._session_count -= 1
        if self._stop_with_last_session and self._session_count == 0:
            await self.close()


class SandboxSessionServer:
    """A server for many sessions with the same Python, packages, limits, policy and `preload`.

    A session with a private server takes as long to start as Python needs to import IPython and
    the modules in `preload`. A session on a running server starts in milliseconds and shares the
    memory of these modules. `async with` starts and stops the server, with all its sessions.

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
