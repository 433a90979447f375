"""The executors of live sessions, without `await`."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Any, Self

from ..aio.background_loop import LoopEnded, background_loop
from ..executors.session.sandbox import SandboxSessionCodeExecutor as AsyncSandboxSession
from ..executors.session.sandbox_server import SandboxSessionServer as AsyncSandboxSessionServer
from .base import SyncSession, with_parameters_of


class SandboxSessionServer(AsyncSandboxSessionServer):
    """`cellblock.SandboxSessionServer` for ``with``. Pass it as `server` to a session.

    `session` makes a `SandboxSessionCodeExecutor` on it.
    """

    @with_parameters_of(AsyncSandboxSession)
    def session(self, *args: Any, **options: Any) -> SandboxSessionCodeExecutor:
        """Make a session on this server. See `SandboxSessionCodeExecutor` for the parameters."""
        return SandboxSessionCodeExecutor(*args, **{"server": self, **options})

    def __enter__(self) -> Self:
        background_loop().run(self.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(LoopEnded):
            background_loop().run(self.__aexit__(kind, error, trace))


class SandboxSessionCodeExecutor(SyncSession):
    """`cellblock.SandboxSessionCodeExecutor`, without `await`."""

    _async_class = AsyncSandboxSession

    @with_parameters_of(AsyncSandboxSession)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
