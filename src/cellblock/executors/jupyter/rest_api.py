"""JupyterApi: what kernels need of a Jupyter server's HTTP interface.

Imported when a server is asked for something: aiohttp is an extra. The token goes into a header, never into a URL, and no
error of aiohttp's goes on up that could hold the headers.
"""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any, cast

import aiohttp

from ...errors import BackendError
from .connection_info import JupyterConnectionInfo

_CONNECT = 60.0  # seconds that the channels of a kernel may take to open: it may still be starting
_ANSWER = 20.0  # seconds that the server may take for anything else
_NO_ENTRY = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class KernelGone(BackendError):
    """The server has the kernel no more."""


class NoEntry(BackendError):
    """The server does not let us in."""


class JupyterApi:
    """A Jupyter server, as its HTTP interface shows it. Every call raises `BackendError`. Closed by `close`."""

    def __init__(self, info: JupyterConnectionInfo) -> None:
        self.url = info.url
        headers = {"Authorization": f"token {info.token}"} if info.token else {}
        # Proxies and passwords of the caller's surroundings have no part in this.
        self._http = aiohttp.ClientSession(
            headers=headers, timeout=aiohttp.ClientTimeout(_ANSWER), trust_env=False
        )

    async def kernel_specs(self) -> dict[str, Any]:
        """Give the kernels that are installed there: name -> description."""
        status, answer = await self._ask("GET", "kernelspecs")
        specs: object = (
            cast("dict[str, object]", answer).get("kernelspecs")
            if isinstance(answer, dict)
            else None
        )
        if not isinstance(specs, dict):
            raise BackendError(f"{self.url} does not answer as a Jupyter server does ({status}).")
        return cast("dict[str, Any]", specs)

    async def language(self, name: str) -> str:
        """Give the language of the kernel `name`."""
        specs = await self.kernel_specs()
        if name not in specs:
            there = ", ".join(sorted(specs)) or "none"
            raise BackendError(
                f"The kernel {name!r} is not installed on the server at {self.url}; installed are: {there}."
            )
        try:
            return str(specs[name]["spec"]["language"])
        except (KeyError, TypeError) as error:
            raise BackendError(
                f"{self.url} does not say which language the kernel {name!r} runs."
            ) from error

    async def kernels(self) -> list[dict[str, Any]]:
        """Give the kernels that run there."""
        status, answer = await self._ask("GET", "kernels")
        if status != HTTPStatus.OK or not isinstance(answer, list):
            raise BackendError(
                f"The Jupyter server at {self.url} does not list its kernels ({status})."
            )
        return cast("list[dict[str, Any]]", answer)

    async def start(self, name: str) -> str:
        """Start a kernel `name`, and give its id."""
        status, made = await self._ask("POST", "kernels", {"name": name})
        if status != HTTPStatus.CREATED or not isinstance(made, dict) or "id" not in made:
            raise BackendError(
                f"The Jupyter server at {self.url} could not start the kernel {name!r} ({status})."
            )
        return str(cast("dict[str, object]", made)["id"])

    async def check(self, kernel: str) -> None:
        """Raise `KernelGone` when the server has the kernel no more."""
        await self._order("GET", kernel)

    async def interrupt(self, kernel: str) -> None:
        """Have the kernel stop what it runs."""
        await self._order("POST", kernel, "/interrupt")

    async def restart(self, kernel: str) -> None:
        """Have a new kernel in its place, of the same id."""
        await self._order("POST", kernel, "/restart")

    async def delete(self, kernel: str) -> None:
        """End the kernel."""
        await self._order("DELETE", kernel)

    async def connect(self, kernel: str, session: str) -> aiohttp.ClientWebSocketResponse:
        """Open the channels of a kernel."""
        url = f"{self.url}/api/kernels/{kernel}/channels"
        try:
            async with asyncio.timeout(_CONNECT):
                return await self._http.ws_connect(
                    url, params={"session_id": session}, max_msg_size=0, heartbeat=30
                )
        except aiohttp.WSServerHandshakeError as error:
            self._check(error.status)
            raise BackendError(
                f"The Jupyter server at {self.url} gives no channels of its kernel ({error.status})."
            ) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._out_of_reach(error) from None

    async def close(self) -> None:
        """Let go of the connections."""
        await self._http.close()

    async def _order(self, method: str, kernel: str, what: str = "") -> None:
        status, _ = await self._ask(method, f"kernels/{kernel}{what}")
        if status == HTTPStatus.NOT_FOUND:
            raise KernelGone(f"The Jupyter server at {self.url} has no such kernel any more.")
        if status >= HTTPStatus.BAD_REQUEST:
            raise BackendError(
                f"The Jupyter server at {self.url} answers {status} to {method} of a kernel{what}."
            )

    async def _ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Give status and content of an answer."""
        try:
            async with self._http.request(method, f"{self.url}/api/{path}", json=body) as response:
                text = await response.text()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._out_of_reach(error) from None
        self._check(response.status)
        try:
            return response.status, json.loads(text) if text else None
        except ValueError:
            return response.status, None

    def _check(self, status: int) -> None:
        if status in _NO_ENTRY:
            raise NoEntry(
                f"The Jupyter server at {self.url} does not let us in ({status}): check the token."
            )

    def _out_of_reach(self, error: Exception) -> BackendError:
        return BackendError(
            f"The Jupyter server at {self.url} cannot be reached ({type(error).__name__})."
        )
