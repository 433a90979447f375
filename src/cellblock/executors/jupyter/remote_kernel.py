"""RemoteKernel: a kernel of a Jupyter server, over HTTP and one WebSocket.

Imported when a kernel is started: aiohttp is an extra.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import uuid
from collections import deque
from datetime import UTC, datetime
from typing import Any, cast

import aiohttp

from ...errors import BackendError
from .connection_info import JupyterConnectionInfo
from .kernel import Death, LiveKernel, Lost, Message, Server
from .messages import tells_of_death
from .request import surely
from .rest_api import JupyterApi, KernelGone

_log = logging.getLogger(__name__)
_PATIENCE = 60.0  # seconds that a kernel may take to answer for the first time
_AGAIN, _PAUSE = 15.0, 0.5  # seconds to reach a kernel again whose socket dropped; between tries
_INTERRUPT = 3.0  # seconds that the server may take to interrupt
_QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)


class RemoteKernel(LiveKernel):
    """The kernel `kernel` of a Jupyter server."""

    def __init__(self, api: JupyterApi, kernel: str, language: str, server: Server) -> None:
        super().__init__(uuid.uuid4().hex, language)
        self._api, self._kernel, self._server = api, kernel, server
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._outbox: deque[tuple[str, str]] = deque()
        self._unanswered: set[str] = set()
        self._probe, self._doubted = "", frozenset[str]()
        self._reading: asyncio.Task[None] | None = None
        self._closed = False

    async def open(self) -> None:
        """Connect, and wait until the kernel answers. Raises `BackendError`."""
        self._socket = await self._api.connect(self._kernel, self.session)
        self._reading = asyncio.create_task(self._read())
        asked = await self._send("kernel_info_request", {})
        try:
            async with asyncio.timeout(_PATIENCE):
                while True:
                    news = await self.inbox.take()
                    if isinstance(news, Death):
                        raise BackendError(f"The kernel on {self._api.url} died at its start.")
                    if isinstance(news, dict) and _kind(cast("Message", news)) == (
                        "kernel_info_reply",
                        asked,
                    ):
                        return
        except TimeoutError as error:
            raise BackendError(
                f"The kernel on {self._api.url} did not answer within {_PATIENCE:.0f} s."
            ) from error

    # what comes

    async def _read(self) -> None:
        """Pass messages on, over a new socket when one drops and the kernel lives: the server keeps what comes meanwhile."""
        try:
            while True:
                assert self._socket is not None
                _acknowledge_at_once(self._socket)
                async for received in self._socket:
                    _acknowledge_at_once(self._socket)
                    if received.type is aiohttp.WSMsgType.TEXT:
                        await self._take(received.data)
                self.drops += 1
                await self._connect_again()
        except BackendError as error:
            self.inbox.close(Death(message=f"\nKilled: {error}"))

    async def _take(self, text: str) -> None:
        try:
            message: object = json.loads(text)
        except (ValueError, RecursionError):
            _log.debug("a message that is not JSON is passed over")
            return
        if tells_of_death(message):
            self.inbox.close(await self._server.why_dead())
        elif isinstance(message, dict):
            await self._note(*_kind(cast("Message", message)))
            await self.inbox.put(cast("Message", message))

    async def _note(self, kind: str, request: str) -> None:
        """Tell of the requests whose answers went down with a socket, as far as this answer shows that."""
        if kind == "execute_reply":
            self._unanswered.discard(request)
        elif kind == "kernel_info_reply" and request == self._probe:
            for lost in self._doubted & self._unanswered:
                self._unanswered.discard(lost)
                await self.inbox.put(Lost(lost))

    async def _connect_again(self) -> None:
        trouble = BackendError(f"The Jupyter server at {self._api.url} cannot be reached.")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_AGAIN):
                while True:
                    try:
                        await self._api.check(self._kernel)
                        self._socket = await self._api.connect(self._kernel, self.session)
                        return await self._ask_again()
                    except KernelGone:
                        raise
                    except BackendError as error:
                        trouble = error
                    if not self._server.runs():
                        break
                    await asyncio.sleep(_PAUSE)
        raise trouble

    async def _ask_again(self) -> None:
        """Send what could not be sent; before it, ask what the kernel answers after all that it had to answer until now."""
        sent = self._unanswered - {request for request, _ in self._outbox}
        if sent:
            self._probe, text = self._message("kernel_info_request", {})
            self._doubted = frozenset(sent)
            self._outbox.appendleft((self._probe, text))
        await self._flush()

    # what goes

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
        request, text = self._message(kind, content)
        if kind == "execute_request":
            self._unanswered.add(request)
        self._outbox.append((request, text))
        await self._flush()
        return request

    def _message(self, kind: str, content: dict[str, Any]) -> tuple[str, str]:
        request = uuid.uuid4().hex
        header = {
            "msg_id": request,
            "username": "cellblock",
            "session": self.session,
            "date": datetime.now(UTC).isoformat(),
            "msg_type": kind,
            "version": "5.3",
        }
        message: dict[str, Any] = {
            "header": header,
            "parent_header": {},
            "metadata": {},
            "content": content,
        }
        return request, json.dumps({**message, "channel": "shell", "buffers": []})

    async def _flush(self) -> None:
        """Send what waits, as far as the socket takes it; the rest goes over the next one."""
        while self._outbox and self._socket is not None and not self._socket.closed:
            request, text = self._outbox.popleft()
            try:
                await self._socket.send_str(text)
            except (aiohttp.ClientError, ConnectionError):
                self._outbox.appendleft((request, text))
                await self._socket.close()

    async def interrupt(self) -> None:
        with contextlib.suppress(BackendError, TimeoutError):  # whoever waits for the end finds out
            async with asyncio.timeout(_INTERRUPT):
                await self._api.interrupt(self._kernel)

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
            await self._api.delete(self._kernel)
        except BackendError as error:
            _log.debug("a kernel could not be ended: %s", error)
        await self._api.close()


def _kind(message: Message) -> tuple[str, str]:
    """Give the kind of a message, and the request that it is about."""
    parent: object = message.get("parent_header")
    request = cast("dict[str, object]", parent).get("msg_id") if isinstance(parent, dict) else None
    return str(message.get("msg_type")), str(request)


def _acknowledge_at_once(connection: aiohttp.ClientWebSocketResponse) -> None:
    """Do not let the server wait for us: it sends two small messages only after the first one is acknowledged (Nagle).

    The kernel forgets the wish after some packets; without it each block with output takes 40 ms more.
    """
    end: socket.socket | None = connection.get_extra_info("socket")
    if end is not None and _QUICK_ACK is not None and end.family != socket.AF_UNIX:
        with contextlib.suppress(OSError):
            end.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)


async def start_kernel(info: JupyterConnectionInfo, name: str, server: Server) -> RemoteKernel:
    """Have the server start the kernel `name`, and connect to it. Raises `BackendError`."""
    api = JupyterApi(info)
    kernel = None
    try:
        language = await api.language(name)
        kernel = RemoteKernel(api, await api.start(name), language, server)
        await kernel.open()
    except BaseException:
        await (kernel.close() if kernel is not None else api.close())
        raise
    return kernel
