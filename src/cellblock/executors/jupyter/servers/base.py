"""OwnJupyterServer: a Jupyter server that we start and end, whatever it runs in."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from ....aio.background_loop import engine
from ..admin_client import JupyterClient
from ..connection_info import JupyterConnectionInfo
from ..kernel import Server


class OwnJupyterServer(Server, ABC):
    """What our Jupyter servers share: they start on `with`, `async with`, `start()`, or when somebody asks where they are.

    Implementations fill in `_launch`, `_runs` and `_end`, which are only ever called on the engine's loop, one at a time.
    """

    def __init__(self) -> None:
        self._info: JupyterConnectionInfo | None = None
        # Keeps "running" and what is behind it one fact while several threads start or stop it.
        self._changing = asyncio.Lock()

    @property
    def connection_info(self) -> JupyterConnectionInfo:
        """Where it is, and what lets one in. Starts it when that has not been done. Raises `BackendError`."""
        info = self._info
        return info if info is not None and self._runs() else engine().wait(self._start())

    def get_client(self) -> JupyterClient:
        """Give a client for its kernels. Starts it when that has not been done. Raises `BackendError`."""
        return JupyterClient(self.connection_info)

    def start(self) -> None:
        """Start it, and wait until it answers. Does nothing when that has been done. Raises `BackendError`."""
        engine().wait(self._start())

    def stop(self) -> None:
        """End it and all its kernels. Does nothing when it does not run."""
        engine().wait(self._stop())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def runs(self) -> bool:
        """See `Server`."""
        return self._info is not None and self._runs()

    async def __aenter__(self) -> Self:
        await engine().call(self._start())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await engine().call(self._stop())

    # what the kinds of servers fill in

    @abstractmethod
    async def _launch(self) -> JupyterConnectionInfo:
        """Start it, and wait until it answers. What it leaves behind when it raises, `_end` removes. Raises `BackendError`."""

    @abstractmethod
    def _runs(self) -> bool:
        """Tell whether what was launched still runs, as far as is known."""

    @abstractmethod
    async def _end(self) -> None:
        """End what runs, and clean up. Does nothing when there is nothing."""

    # on the engine's loop

    async def _start(self) -> JupyterConnectionInfo:
        async with self._changing:
            if self._info is not None and self._runs():
                return self._info
            self._info = None
            await self._end()
            try:
                self._info = await self._launch()
            except BaseException:
                await self._end()
                raise
            return self._info

    async def _stop(self) -> None:
        async with self._changing:
            self._info = None
            await self._end()
