"""RemoteKernel: a kernel on a Jupyter server, reached over HTTP and one WebSocket.

Import this module only when a kernel is started, because aiohttp is an extra.
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
from typing import cast

import aiohttp

from ...errors import BackendError
from .connection_info import JupyterConnectionInfo
from .inbox import KernelDied, Message, ReplyLost
from .kernel import Kernel, KernelServer
from .messages import reports_kernel_death
from .rest_api import JupyterApi, KernelGone

_log = logging.getLogger(__name__)
_READY_SECONDS = 60.0  # until a new kernel must reply to the first request
_RECONNECT_SECONDS = 15.0  # for restoring a connection that was lost
_RETRY_PAUSE = 0.5  # seconds between two attempts
_INTERRUPT_SECONDS = 3.0
_TCP_FAMILIES = socket.AF_INET, socket.AF_INET6
_QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)


class RemoteKernel(Kernel):
    """The kernel `kernel_id` on a Jupyter server."""

    def __init__(
        self, api: JupyterApi, kernel_id: str, language: str, server: KernelServer
    ) -> None:
        super().__init__(uuid.uuid4().hex, language)
        self._api, self._kernel_id, self._server = api, kernel_id, server
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._outbox: deque[tuple[str, str]] = deque()
        self._unanswered_requests: set[str] = set()
        self._probe, self._in_doubt = "", frozenset[str]()
        self._reader: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Connect, and wait until the kernel replies. Raise `BackendError` if it does not."""
        self._socket = await self._api.open_channels(self._kernel_id, self.session)
        self._reader = asyncio.create_task(self._read_socket())
        request = await self._queue_request("kernel_info_request", {})
        try:
            async with asyncio.timeout(_READY_SECONDS):
                while True:
                    item = await self.inbox.next_item()
                    if isinstance(item, KernelDied):
                        raise BackendError(
                            f"The kernel on {self._api.url} died while it started. "
                            "The server's log may say why."
                        )
                    if isinstance(item, dict) and _kind_and_request(cast("Message", item)) == (
                        "kernel_info_reply",
                        request,
                    ):
                        return
        except TimeoutError as error:
            raise BackendError(
                f"The kernel on {self._api.url} did not answer within {_READY_SECONDS:.0f} s."
            ) from error

    # receiving

    async def _read_socket(self) -> None:
        """Put received messages into the inbox. Reconnect if the connection is lost.

        The server keeps the messages that the kernel sends meanwhile.
        """
        try:
            while True:
                assert self._socket is not None
                _set_quick_ack(self._socket)
                async for received in self._socket:
                    _set_quick_ack(self._socket)
                    if received.type is aiohttp.WSMsgType.TEXT:
                        await self._handle_message(received.data)
                self.reconnections += 1
                await self._reconnect()
        except BackendError as error:
            self.inbox.close(KernelDied(message=f"\nKilled: {error}"))

    async def _handle_message(self, text: str) -> None:
        try:
            message: object = json.loads(text)
        except (ValueError, RecursionError):
            _log.debug("message that is not JSON ignored")
            return
        if reports_kernel_death(message):
            self.inbox.close(await self._server.death_reason())
        elif isinstance(message, dict):
            await self._track_reply(*_kind_and_request(cast("Message", message)))
            await self.inbox.add_message(cast("Message", message))

    async def _track_reply(self, kind: str, request: str) -> None:
        """Record a reply. If it answers the probe, report the earlier replies that are lost."""
        if kind == "execute_reply":
            self._unanswered_requests.discard(request)
        elif kind == "kernel_info_reply" and request == self._probe:
            for lost in self._in_doubt & self._unanswered_requests:
                self._unanswered_requests.discard(lost)
                await self.inbox.add_message(ReplyLost(lost))

    async def _reconnect(self) -> None:
        last_error = BackendError(f"The Jupyter server at {self._api.url} cannot be reached.")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RECONNECT_SECONDS):
                while True:
                    try:
                        await self._api.check_kernel(self._kernel_id)
                        self._socket = await self._api.open_channels(self._kernel_id, self.session)
                        return await self._resume_sending()
                    except KernelGone:
                        raise
                    except BackendError as error:
                        last_error = error
                    if not self._server.is_running():
                        break
                    await asyncio.sleep(_RETRY_PAUSE)
        raise last_error

    async def _resume_sending(self) -> None:
        """Send the requests that were not sent yet, after a probe.

        A kernel replies in order. So when the probe is answered, a request that was sent before the
        connection was lost, and is still unanswered, will never be answered.
        """
        sent = self._unanswered_requests - {request for request, _ in self._outbox}
        if sent:
            self._probe, text = self._encode_request("kernel_info_request", {})
            self._in_doubt = frozenset(sent)
            self._outbox.appendleft((self._probe, text))
        await self._send_queued()

    # sending

    async def send_execute(self, code: str, *, silent: bool = False) -> str:
        content: dict[str, object] = {
            "code": code,
            "silent": silent,
            "store_history": not silent,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        return await self._queue_request("execute_request", content)

    async def _queue_request(self, kind: str, content: dict[str, object]) -> str:
        request, text = self._encode_request(kind, content)
        if kind == "execute_request":
            self._unanswered_requests.add(request)
        self._outbox.append((request, text))
        await self._send_queued()
        return request

    def _encode_request(self, kind: str, content: dict[str, object]) -> tuple[str, str]:
        request = uuid.uuid4().hex
        header = {
            "msg_id": request,
            "username": "cellblock",
            "session": self.session,
            "date": datetime.now(UTC).isoformat(),
            "msg_type": kind,
            "version": "5.3",
        }
        message: dict[str, object] = {
            "header": header,
            "parent_header": {},
            "metadata": {},
            "content": content,
        }
        return request, json.dumps({**message, "channel": "shell", "buffers": []})

    async def _send_queued(self) -> None:
        """Send the queued requests. If the connection is lost, the rest waits for the next one."""
        while self._outbox and self._socket is not None and not self._socket.closed:
            request, text = self._outbox.popleft()
            try:
                await self._socket.send_str(text)
            except (aiohttp.ClientError, ConnectionError):
                self._outbox.appendleft((request, text))
                await self._socket.close()

    async def interrupt(self) -> None:
        # The caller waits for the end of the code, and so notices a failure.
        with contextlib.suppress(BackendError, TimeoutError):
            async with asyncio.timeout(_INTERRUPT_SECONDS):
                await self._api.interrupt_kernel(self._kernel_id)

    async def _shut_down(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])
        if self._socket is not None:
            await self._socket.close()
        try:
            await self._api.delete_kernel(self._kernel_id)
        except BackendError as error:
            _log.debug("a kernel could not be deleted: %s", error)
        await self._api.close()


def _kind_and_request(message: Message) -> tuple[str, str]:
    """Return the type of a message, and the ID of the request that it belongs to."""
    parent: object = message.get("parent_header")
    request = cast("dict[str, object]", parent).get("msg_id") if isinstance(parent, dict) else None
    return str(message.get("msg_type")), str(request)


def _set_quick_ack(connection: aiohttp.ClientWebSocketResponse) -> None:
    """Acknowledge packets immediately.

    By Nagle's algorithm, the server sends a second small message only after the first one is
    acknowledged. Delayed acknowledgements would cost each block with output 40 ms. Linux resets the
    option after some packets, so it must be set again and again.
    """
    tcp: socket.socket | None = connection.get_extra_info("socket")
    if tcp is not None and _QUICK_ACK is not None and tcp.family in _TCP_FAMILIES:
        with contextlib.suppress(OSError):
            tcp.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)


async def start_kernel(
    info: JupyterConnectionInfo, name: str, server: KernelServer
) -> RemoteKernel:
    """Start the kernel `name` on the server, and connect to it. Raise `BackendError` on failure."""
    api = JupyterApi(info)
    kernel = None
    try:
        language = await api.kernel_language(name)
        kernel = RemoteKernel(api, await api.start_kernel(name), language, server)
        await kernel.connect()
    except BaseException:
        await (kernel.close() if kernel is not None else api.close())
        raise
    return kernel
