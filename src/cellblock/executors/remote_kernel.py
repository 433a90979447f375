"""RemoteKernel: a kernel of a Jupyter server, over HTTP and one WebSocket.

Imported when a kernel is started: aiohttp is an extra. The token goes into a header, never into a URL, and no error of
aiohttp's goes on up that could hold the headers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import uuid
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, cast

import aiohttp

from ..errors import PlaceError
from .conversation import surely
from .jupyter_connection import JupyterConnectionInfo
from .kernel import tells_of_death
from .live_kernel import Death, LiveKernel, Message

_log = logging.getLogger(__name__)
_PATIENCE = 60.0  # seconds that a kernel may take to answer for the first time
_ANSWER = 20.0  # seconds that the server may take for anything else
_TRIES, _PAUSE = 20, 0.5  # to reach a kernel again whose socket dropped; seconds between
_NO_ENTRY = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class JupyterApi:
    """The part of a Jupyter server's HTTP interface that kernels need. Closed by `close`."""

    def __init__(self, info: JupyterConnectionInfo) -> None:
        self.url = info.url
        headers = {"Authorization": f"token {info.token}"} if info.token else {}
        # Proxies and passwords of the caller's surroundings have no part in this.
        self._http = aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(_ANSWER), trust_env=False)

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Give status and content of an answer. Raises `PlaceError` when there is none, or the token is not right."""
        try:
            async with self._http.request(method, f"{self.url}/api/{path}", json=body) as response:
                text = await response.text()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise PlaceError(f"The Jupyter server at {self.url} cannot be reached ({type(error).__name__}).") from None
        self._check(response.status)
        try:
            return response.status, json.loads(text) if text else None
        except ValueError:
            return response.status, None

    def _check(self, status: int) -> None:
        if status in _NO_ENTRY:
            raise PlaceError(f"The Jupyter server at {self.url} does not let us in ({status}): check the token.")

    async def connect(self, kernel: str, session: str) -> aiohttp.ClientWebSocketResponse:
        """Open the channels of a kernel. Raises `PlaceError`."""
        url = f"{self.url}/api/kernels/{kernel}/channels"
        try:
            async with asyncio.timeout(_PATIENCE):
                return await self._http.ws_connect(url, params={"session_id": session}, max_msg_size=0, heartbeat=30)
        except aiohttp.WSServerHandshakeError as error:
            self._check(error.status)
            raise PlaceError(f"The Jupyter server at {self.url} gives no channels of its kernel ({error.status}).") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise PlaceError(f"The Jupyter server at {self.url} cannot be reached ({type(error).__name__}).") from None

    async def close(self) -> None:
        """Let go of the connections."""
        await self._http.close()


class RemoteKernel(LiveKernel):
    """The kernel `kernel` of a Jupyter server."""

    def __init__(self, api: JupyterApi, kernel: str, language: str) -> None:
        super().__init__(uuid.uuid4().hex, language)
        self._api, self._kernel = api, kernel
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._connected = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._closed = False

    async def open(self) -> None:
        """Connect, and wait until the kernel answers. Raises `PlaceError`."""
        await self._connect()
        self._reading = asyncio.create_task(self._read())
        asked = await self._send("kernel_info_request", {})
        try:
            async with asyncio.timeout(_PATIENCE):
                while True:
                    news = await self.inbox.take()
                    if isinstance(news, Death):
                        raise PlaceError(f"The kernel on {self._api.url} died at its start.")
                    if not isinstance(news, str) and _answers(news, asked):
                        return
        except TimeoutError as error:
            raise PlaceError(f"The kernel on {self._api.url} did not answer within {_PATIENCE:.0f} s.") from error

    async def _connect(self) -> None:
        self._socket = await self._api.connect(self._kernel, self.session)
        self._connected.set()

    async def _read(self) -> None:
        """Pass messages on, over a new socket when one drops and the kernel lives: the server keeps what comes meanwhile."""
        try:
            while True:
                assert self._socket is not None
                async for received in self._socket:
                    if received.type is aiohttp.WSMsgType.TEXT:
                        await self._take(received.data)
                self._connected.clear()
                await self._connect_again()
        except PlaceError as error:
            self._connected.set()  # who wants to send finds out that it is over
            self.inbox.close(Death(message=f"\nKilled: {error}"))

    async def _take(self, text: str) -> None:
        try:
            message: object = json.loads(text)
        except (ValueError, RecursionError):
            _log.debug("a message that is not JSON is passed over")
            return
        if tells_of_death(message):
            self.inbox.close(Death())
        elif isinstance(message, dict):
            await self.inbox.put(cast("Message", message))

    async def _connect_again(self) -> None:
        for tries_left in reversed(range(_TRIES)):
            try:
                status, _ = await self._api.ask("GET", f"kernels/{self._kernel}")
                if status == HTTPStatus.NOT_FOUND:
                    raise _KernelGone(f"the Jupyter server at {self._api.url} has no such kernel any more.")
                await self._connect()
                return
            except _KernelGone:
                raise
            except PlaceError:
                if not tries_left:
                    raise
            await asyncio.sleep(_PAUSE)

    async def execute(self, code: str, *, silent: bool = False) -> str:
        content: dict[str, Any] = {
            "code": code,
            "silent": silent,
            "store_history": not silent,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        return await self._send("execute_request", content)

    async def _send(self, kind: str, content: dict[str, Any]) -> str:
        request = uuid.uuid4().hex
        header = {
            "msg_id": request,
            "username": "cellblock",
            "session": self.session,
            "date": datetime.now(UTC).isoformat(),
            "msg_type": kind,
            "version": "5.3",
        }
        message: dict[str, Any] = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
        text = json.dumps({**message, "channel": "shell", "buffers": []})
        await self._connected.wait()
        assert self._socket is not None
        if self.inbox.death is None:
            try:
                await self._socket.send_str(text)
            except (aiohttp.ClientError, ConnectionError):  # it drops right now: once more over the next one
                self._connected.clear()
                await self._socket.close()
                await self._connected.wait()
                with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                    await self._socket.send_str(text)
        return request

    async def interrupt(self) -> None:
        with contextlib.suppress(PlaceError):  # whoever waits for the end finds out
            await self._api.ask("POST", f"kernels/{self._kernel}/interrupt")

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.inbox.close(Death())
            await surely(self._end())

    async def _end(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        if self._socket is not None:
            await self._socket.close()
        try:
            await self._api.ask("DELETE", f"kernels/{self._kernel}")
        except PlaceError as error:
            _log.debug("a kernel could not be ended: %s", error)
        await self._api.close()


class _KernelGone(PlaceError):
    """The server has the kernel no more."""


def _answers(message: Message, request: str) -> bool:
    parent: object = message.get("parent_header")
    asked = cast("dict[str, object]", parent).get("msg_id") if isinstance(parent, dict) else None
    return message.get("msg_type") == "kernel_info_reply" and asked == request


async def start_kernel(info: JupyterConnectionInfo, name: str) -> RemoteKernel:
    """Have the server start the kernel `name`, and connect to it. Raises `PlaceError`."""
    api = JupyterApi(info)
    kernel = None
    try:
        language = await _language(api, name)
        status, made = await api.ask("POST", "kernels", {"name": name})
        if status != HTTPStatus.CREATED or not isinstance(made, dict) or "id" not in made:
            raise PlaceError(f"The Jupyter server at {api.url} could not start the kernel {name!r} ({status}).")
        kernel = RemoteKernel(api, str(cast("dict[str, object]", made)["id"]), language)
        await kernel.open()
    except BaseException:
        await (kernel.close() if kernel is not None else api.close())
        raise
    return kernel


async def _language(api: JupyterApi, name: str) -> str:
    """Give the language of the kernel `name`. Raises `PlaceError` when the server has none of that name."""
    status, answer = await api.ask("GET", "kernelspecs")
    try:
        specs = cast("dict[str, Any]", answer["kernelspecs"])
        if name not in specs:
            there = ", ".join(sorted(specs)) or "none"
            raise PlaceError(f"The kernel {name!r} is not installed on the server at {api.url}; installed are: {there}.")
        return str(specs[name]["spec"]["language"])
    except (KeyError, TypeError) as error:
        raise PlaceError(f"{api.url} does not answer as a Jupyter server does ({status}).") from error
