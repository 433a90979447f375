"""SandboxSessionServer: one warmed-up cell server that any number of live sessions are forked from, each in milliseconds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import SimpleNamespace, TracebackType
from typing import Self

from ...aio.background_loop import engine
from ...backends.base import Connection
from ...backends.sandbox import SandboxPlace
from ...backends.warm_server import WarmServer
from ...environments.interpreter import find_interpreter
from ...environments.virtualenv import environment_for, site_packages
from ...errors import BackendLost
from ...limits import SANDBOX_LIMITS, Limits
from ...policy import Policy
from ..command_line.base import texts


class SessionServer(WarmServer):
    """The server itself, for executors. `stops_with_last`: it ends with its last session."""

    def __init__(
        self,
        *,
        packages: Sequence[str] = (),
        limits: Limits = SANDBOX_LIMITS,
        policy: Policy | None = None,
        preload: Sequence[str] = (),
        virtual_env_context: SimpleNamespace | None = None,
        stops_with_last: bool = False,
    ) -> None:
        super().__init__()
        self.packages, self.preload = texts("packages", packages), texts("preload", preload)
        self.limits, self.policy = limits, policy or Policy()
        self._python = None if virtual_env_context is None else str(virtual_env_context.env_exe)
        self._numbers = itertools.count(1)
        self._lessees = 0
        self._stops_with_last = stops_with_last

    async def open(self, more_packages: Sequence[str] = ()) -> Connection:
        """Give the connection, made on the first call. Raises as starting an executor does."""
        if self._connection is not None:
            if not self._connection.is_open:
                raise BackendLost(
                    "The server of this session has ended: stop everything that uses it, and start it again."
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
        return await self._launch(
            SandboxPlace(interpreter, shown, self.limits, self.policy, self.preload)
        )

    def next_number(self) -> int:
        """Give the number of the next session."""
        return next(self._numbers)

    def lease(self) -> None:
        """One more session uses it."""
        self._lessees += 1

    async def release(self) -> None:
        """One less; a private server ends with the last one."""
        self._lessees -= 1
        if self._stops_with_last and self._lessees == 0:
            await self.close()


class SandboxSessionServer:
    """What sessions have in common: Python, packages, limits, policy, and the modules that are imported already.

    A session with a server of its own takes as long to start as Python takes to import IPython and all of `preload`; one of a
    server that runs takes milliseconds, and shares that memory. `async with` starts it and stops it, with all its sessions.

    packages, limits, policy, preload, virtual_env_context   as for `SandboxCommandLineCodeExecutor`
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
        self.warm = SessionServer(
            packages=packages,
            limits=limits,
            policy=policy,
            preload=preload,
            virtual_env_context=virtual_env_context,
        )

    async def __aenter__(self) -> Self:
        await engine().call(self.warm.open())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await engine().call(self.warm.close())
