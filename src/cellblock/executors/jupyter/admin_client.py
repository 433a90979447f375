"""JupyterClient: the kernels of a Jupyter server, started, listed and ended by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ...aio.background_loop import engine
from ...errors import BackendError
from .connection_info import JupyterConnectionInfo

if TYPE_CHECKING:
    from .rest_api import JupyterApi

T = TypeVar("T")
_MISSING = "Jupyter servers need aiohttp, which is not installed: pip install 'cellblock[jupyter]'."


class JupyterClient:
    """Start, list and end kernels of the Jupyter server at `connection_info`. Every call raises `BackendError`.

    For code to run in them, `JupyterServerCodeExecutor` and its kin start kernels of their own. `async with` closes it.
    """

    def __init__(self, connection_info: JupyterConnectionInfo) -> None:
        self.connection_info = connection_info
        self._api: JupyterApi | None = None

    async def list_kernel_specs(self) -> dict[str, Any]:
        """Give the kernels that are installed there: name -> description."""
        return await self._call(lambda api: api.kernel_specs())

    async def list_kernels(self) -> list[dict[str, Any]]:
        """Give the kernels that run there; each has an `id`, a `name` and an `execution_state`."""
        return await self._call(lambda api: api.kernels())

    async def start_kernel(self, kernel_spec_name: str = "python3") -> str:
        """Start a kernel, and give its id."""
        return await self._call(lambda api: api.start(kernel_spec_name))

    async def interrupt_kernel(self, kernel_id: str) -> None:
        """Have a kernel stop what it runs."""
        await self._call(lambda api: api.interrupt(kernel_id))

    async def restart_kernel(self, kernel_id: str) -> None:
        """Have a new kernel in its place, of the same id."""
        await self._call(lambda api: api.restart(kernel_id))

    async def delete_kernel(self, kernel_id: str) -> None:
        """End a kernel."""
        await self._call(lambda api: api.delete(kernel_id))

    async def close(self) -> None:
        """Let go of the connections. The next call makes new ones."""
        await engine().call(self._close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _call(self, ask: Callable[[JupyterApi], Awaitable[T]]) -> T:
        async def on_the_engine() -> T:
            return await ask(self._opened())

        return await engine().call(on_the_engine())

    def _opened(self) -> JupyterApi:
        try:
            # An extra: without it the rest of the library works.
            from .rest_api import JupyterApi
        except ImportError as error:
            raise BackendError(_MISSING) from error
        if self._api is None:
            self._api = JupyterApi(self.connection_info)
        return self._api

    async def _close(self) -> None:
        api, self._api = self._api, None
        if api is not None:
            await api.close()
