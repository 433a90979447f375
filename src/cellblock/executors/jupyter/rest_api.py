"""JupyterApi: the kernel endpoints of a Jupyter server's REST API.

Import this module only when a request is made, because aiohttp is an extra. The token is sent in a
header, never in a URL, and errors of aiohttp, which may contain the headers, are not chained.
"""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any, cast

import aiohttp

from ...errors import BackendError
from .connection_info import JupyterConnectionInfo

_CHANNELS_SECONDS = 60.0  # for opening a kernel's channels; it may still be starting
_RESPONSE_SECONDS = 20.0  # for any other request
_ACCESS_DENIED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class KernelGone(BackendError):
    """The server no longer has the kernel."""


class AccessDenied(BackendError):
    """The server rejects the token."""


class JupyterApi:
    """A client for the REST API of a Jupyter server. Close it by `close`.

    Every method raises `BackendError` if the server cannot be reached or refuses the request.
    """

    def __init__(self, info: JupyterConnectionInfo) -> None:
        self.url = info.url
        headers = {"Authorization": f"token {info.token}"} if info.token else {}
        # Do not use proxies from environment variables, or passwords from ~/.netrc.
        self._http = aiohttp.ClientSession(
            headers=headers, timeout=aiohttp.ClientTimeout(_RESPONSE_SECONDS), trust_env=False
        )

    async def list_kernel_specs(self) -> dict[str, Any]:
        """Return the installed kernels: name -> kernel spec."""
        status, answer = await self._request("GET", "kernelspecs")
        specs: object = (
            cast("dict[str, object]", answer).get("kernelspecs")
            if isinstance(answer, dict)
            else None
        )
        if not isinstance(specs, dict):
            raise BackendError(
                f"{self.url} does not respond like a Jupyter server (HTTP status {status}). "
                "Check the host and port."
            )
        return cast("dict[str, Any]", specs)

    async def kernel_language(self, name: str) -> str:
        """Return the language of the kernel `name`."""
        specs = await self.list_kernel_specs()
        if name not in specs:
            installed = ", ".join(sorted(specs)) or "none"
            raise BackendError(
                f"The kernel {name!r} is not installed on the server at {self.url}; "
                f"installed are: {installed}."
            )
        try:
            return str(specs[name]["spec"]["language"])
        except (KeyError, TypeError) as error:
            raise BackendError(
                f"The server at {self.url} does not report the language of the kernel {name!r}."
            ) from error

    async def list_kernels(self) -> list[dict[str, Any]]:
        """Return the descriptions of the running kernels."""
        status, answer = await self._request("GET", "kernels")
        if status != HTTPStatus.OK or not isinstance(answer, list):
            raise BackendError(
                f"The Jupyter server at {self.url} does not list its kernels "
                f"(HTTP status {status}). For a kernel gateway, set "
                "JupyterWebsocketPersonality.list_kernels."
            )
        return cast("list[dict[str, Any]]", answer)

    async def start_kernel(self, name: str) -> str:
        """Start a kernel `name`, and return its ID."""
        status, answer = await self._request("POST", "kernels", {"name": name})
        if status != HTTPStatus.CREATED or not isinstance(answer, dict) or "id" not in answer:
            raise BackendError(
                f"The Jupyter server at {self.url} could not start the kernel {name!r} "
                f"(HTTP status {status}). Its log may say why."
            )
        return str(cast("dict[str, object]", answer)["id"])

    async def check_kernel(self, kernel: str) -> None:
        """Raise `KernelGone` if the server no longer has the kernel."""
        await self._request_kernel("GET", kernel)

    async def interrupt_kernel(self, kernel: str) -> None:
        """Interrupt the code that the kernel runs."""
        await self._request_kernel("POST", kernel, "/interrupt")

    async def restart_kernel(self, kernel: str) -> None:
        """Replace the kernel by a new one with the same ID."""
        await self._request_kernel("POST", kernel, "/restart")

    async def delete_kernel(self, kernel: str) -> None:
        """Shut the kernel down."""
        await self._request_kernel("DELETE", kernel)

    async def open_channels(self, kernel: str, session: str) -> aiohttp.ClientWebSocketResponse:
        """Open the WebSocket to the channels of a kernel."""
        url = f"{self.url}/api/kernels/{kernel}/channels"
        try:
            async with asyncio.timeout(_CHANNELS_SECONDS):
                return await self._http.ws_connect(
                    url, params={"session_id": session}, max_msg_size=0, heartbeat=30
                )
        except aiohttp.WSServerHandshakeError as error:
            self._check_access(error.status)
            raise BackendError(
                f"The Jupyter server at {self.url} refuses the WebSocket to its kernel "
                f"(HTTP status {error.status})."
            ) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(error) from None

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def _request_kernel(self, method: str, kernel: str, action: str = "") -> None:
        status, _ = await self._request(method, f"kernels/{kernel}{action}")
        if status == HTTPStatus.NOT_FOUND:
            raise KernelGone(f"The Jupyter server at {self.url} has no such kernel any more.")
        if status >= HTTPStatus.BAD_REQUEST:
            raise BackendError(
                f"The Jupyter server at {self.url} responded to {method} kernels/ID{action} "
                f"with HTTP status {status}."
            )

    async def _request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send a request, and return the status and the decoded body of the response."""
        try:
            async with self._http.request(method, f"{self.url}/api/{path}", json=body) as response:
                text = await response.text()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(error) from None
        self._check_access(response.status)
        try:
            return response.status, json.loads(text) if text else None
        except ValueError:
            return response.status, None

    def _check_access(self, status: int) -> None:
        if status in _ACCESS_DENIED:
            raise AccessDenied(
                f"The Jupyter server at {self.url} denied access (HTTP status {status}). "
                "Check the token."
            )

    def _unreachable(self, error: Exception) -> BackendError:
        return BackendError(
            f"The Jupyter server at {self.url} cannot be reached ({type(error).__name__})."
        )
