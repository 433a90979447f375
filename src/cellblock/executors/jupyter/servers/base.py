"""ManagedJupyterServer: base class of the Jupyter servers that cellblock starts and stops."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from ....aio.background_loop import LoopEnded, background_loop
from ....aio.shielded import run_to_end
from ..admin_client import JupyterClient
from ..connection_info import JupyterConnectionInfo
from ..kernel import KernelServer


class ManagedJupyterServer(KernelServer, ABC):
    """A Jupyter server that starts on `with`, `async with`, `start()` or reading `connection_info`.

    Subclasses implement `_launch`, `_is_alive` and `_shut_down`, which are called only on the
    background loop, one at a time.
    """

    def __init__(self) -> None:
        self._info: JupyterConnectionInfo | None = None
        # Threads may start and stop the server at the same time.
        self._state_lock = asyncio.Lock()

    @property
    def connection_info(self) -> JupyterConnectionInfo:
        """The address and the token. Reading it starts the server, or raises `BackendError`."""
        info = self._info
        if info is not None and self._is_alive():
            return info
        return background_loop().run(self._start())

    def get_client(self) -> JupyterClient:
        """Return a client for the server's kernels. Start the server if needed.

        Raise `BackendError` if it does not start.
        """
        return JupyterClient(self.connection_info)

    def start(self) -> None:
        """Start the server, and wait until it responds. Do nothing if it is running.

        Raise `BackendError` if it does not start.
        """
        background_loop().run(self._start())

    def stop(self) -> None:
        """Stop the server and all its kernels. Do nothing if it is not running."""
        with contextlib.suppress(LoopEnded):
            background_loop().run(self._stop())

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

    def is_running(self) -> bool:
        """Return True if the server has been started and is not known to have exited."""
        return self._info is not None and self._is_alive()

    async def __aenter__(self) -> Self:
        try:
            await background_loop().call(self._start())
        except asyncio.CancelledError:
            # It may have started in spite of that, and nothing calls `__aexit__`.
            await background_loop().call(self._stop())
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(LoopEnded):
            await background_loop().call(self._stop())

    # implemented by subclasses

    @abstractmethod
    async def _launch(self) -> JupyterConnectionInfo:
        """Start the server, and wait until it responds. Raise `BackendError` if it does not.

        `_shut_down` cleans up after a failure.
        """

    @abstractmethod
    def _is_alive(self) -> bool:
        """Return False if the server that was launched is known to have exited."""

    @abstractmethod
    async def _shut_down(self) -> None:
        """Stop the server, and clean up. Do nothing if nothing was launched."""

    # on the background loop

    async def _start(self) -> JupyterConnectionInfo:
        async with self._state_lock:
            if self._info is not None and self._is_alive():
                return self._info
            self._info = None
            await run_to_end(self._shut_down())
            try:
                self._info = await self._launch()
            except BaseException:
                await self._shut_down()
                raise
            return self._info

    async def _stop(self) -> None:
        async with self._state_lock:
            self._info = None
            await run_to_end(self._shut_down())
