"""JupyterClient: start, list and delete kernels of a Jupyter server by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ...aio.background_loop import background_loop
from ...errors import BackendError
from .connection_info import JupyterConnectionInfo

if TYPE_CHECKING:
    from .rest_api import JupyterApi

T = TypeVar("T")
_MISSING = "Jupyter servers need aiohttp, which is not installed: pip install 'cellblock[jupyter]'."


class JupyterClient:
    """Start, list and delete kernels of the Jupyter server at `connection_info`.

    To run code, use `JupyterServerCodeExecutor`, which starts its own kernel. Every method
    raises `BackendError` if the server cannot be reached or refuses. `async with` closes the
    client.
    """

    def __init__(self, connection_info: JupyterConnectionInfo) -> None:
        self.connection_info = connection_info
        self._api: JupyterApi | None = None

    async def list_kernel_specs(self) -> dict[str, Any]:
        """Return the installed kernels: name -> kernel spec."""
        return await self._call(lambda api: api.list_kernel_specs())

    async def list_kernels(self) -> list[dict[str, Any]]:
        """Return the running kernels; each has an `id`, a `name` and an `execution_state`."""
        return await self._call(lambda api: api.list_kernels())

    async def start_kernel(self, kernel_spec_name: str = "python3") -> str:
        """Start a kernel, and return its ID."""
        return await self._call(lambda api: api.start_kernel(kernel_spec_name))

    async def interrupt_kernel(self, kernel_id: str) -> None:
        """Interrupt the code that a kernel runs."""
        await self._call(lambda api: api.interrupt_kernel(kernel_id))

    async def restart_kernel(self, kernel_id: str) -> None:
        """Replace a kernel by a new one with the same ID."""
        await self._call(lambda api: api.restart_kernel(kernel_id))

    async def delete_kernel(self, kernel_id: str) -> None:
        """Shut a kernel down."""
        await self._call(lambda api: api.delete_kernel(kernel_id))

    async def close(self) -> None:
        """Close the connections. The next call opens new ones."""
        await background_loop().call(self._close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _call(self, request: Callable[[JupyterApi], Awaitable[T]]) -> T:
        async def call_request() -> T:
            return await request(self._open_api())

        return await background_loop().call(call_request())

    def _open_api(self) -> JupyterApi:
        try:
            # Imported here because it needs an extra.
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
