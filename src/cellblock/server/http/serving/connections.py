"""HTTP connections with time limits for clients that stop sending a request or reading an answer.

uvicorn limits only the time between two requests. Request bodies have a limit in `bodies`. The
number of connections is limited too, so that sessions have the files that they need.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import math
import resource
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, ClassVar, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_MAX_HEADER_BYTES = 16 * 1024
_MAX_CONNECTIONS = 4096
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_SILENT_SECONDS = 60.0  # between two reports that no connection can be accepted
_log = logging.getLogger(__name__)


class _StrictParser(h11.Connection):
    """Refuses requests about whose end a proxy can have another opinion (RFC 9112, 6.1)."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return the next event. Raise `h11.RemoteProtocolError`."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if {b"content-length", b"transfer-encoding"} <= names:
                raise h11.RemoteProtocolError("both Content-Length and Transfer-Encoding")
        return event


class LimitedConnection(H11Protocol):
    """One connection. Use `limited_connections` to set its limit."""

    stall_seconds: ClassVar[float] = 30.0

    _header_timer: asyncio.TimerHandle | None = None  # while no request is complete
    _abort_timer: asyncio.TimerHandle | None = None  # while the client must read

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # type: ignore[override]
        """Expect the headers of the first request. Refuse a connection that is one too many."""
        super().connection_made(cast(asyncio.Transport, transport))
        self.conn = _StrictParser(h11.SERVER, _MAX_HEADER_BYTES)
        if len(self.connections) > (most := _most_connections()):
            text = f"The server already has {most} connections. Try again later."
            self._end_with(_answer(HTTPStatus.SERVICE_UNAVAILABLE, "ServerFull", text, 10))
        else:
            self._set_header_timer()

    def data_received(self, data: bytes) -> None:
        """Handle data, and expect the rest of the headers if they are not complete."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._set_header_timer()
        else:
            self._header_timer = _cancel(self._header_timer)

    def pause_writing(self) -> None:
        """Expect the client to read."""
        super().pause_writing()
        self._set_abort_timer()

    def resume_writing(self) -> None:
        """Expect nothing: the client has read."""
        super().resume_writing()
        self._abort_timer = _cancel(self._abort_timer)

    def timeout_keep_alive_handler(self) -> None:
        """Close an unused connection, even if the client does not read the end of the answer."""
        super().timeout_keep_alive_handler()
        self._set_abort_timer()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP, in the form of all errors, unless an answer has begun."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        with contextlib.suppress(AttributeError):  # there was no request
            self.cycle.disconnected = True  # its handler must not answer, too
        self._end_with(_answer(HTTPStatus.BAD_REQUEST, "InvalidRequest", msg))

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing any more."""
        self._header_timer = _cancel(self._header_timer)
        super().connection_lost(exc)
        self._abort_timer = _cancel(self._abort_timer)

    def _set_header_timer(self) -> None:
        # The limit is for all headers: a client that sends a byte now and then does not extend it.
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(self.stall_seconds, self._end_half_request)

    def _set_abort_timer(self) -> None:
        if self._abort_timer is None:
            self._abort_timer = self.loop.call_later(self.stall_seconds, self.transport.abort)

    def _end_half_request(self) -> None:
        if self.transport.is_closing():
            return
        text = f"The headers were not complete within {self.stall_seconds:g} s. Send them again."
        self._end_with(_answer(HTTPStatus.REQUEST_TIMEOUT, "RequestTimeout", text))

    def _end_with(self, answer: bytes) -> None:
        self.transport.write(answer)
        self.transport.close()
        self._set_abort_timer()


def limited_connections(stall_seconds: float) -> type[LimitedConnection]:
    """Return the class of connections whose clients may stall for `stall_seconds`.

    A client that does not complete its headers in this time gets the status 408. A connection
    whose client reads nothing of an answer for this time is aborted.
    """
    return type("LimitedConnection", (LimitedConnection,), {"stall_seconds": stall_seconds})


def _most_connections() -> int:
    """Return how many connections may be open: sessions need the other half of the files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(_MAX_CONNECTIONS, files // 2)


def accept_errors() -> Callable[[asyncio.AbstractEventLoop, Mapping[str, Any]], None]:
    """Return a handler of errors of an event loop that reports seldom that it cannot accept.

    asyncio reports it a thousand times a second. The connections wait.
    """
    silent_until = -math.inf

    def handle(loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        nonlocal silent_until
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in _NO_ROOM and "socket" in context):
            loop.default_exception_handler(dict(context))
        elif loop.time() >= silent_until:
            silent_until = loop.time() + _SILENT_SECONDS
            _log.warning("new connections wait, because they cannot be accepted: %s", error)

    return handle


def _answer(status: HTTPStatus, code: str, message: str, retry_after: int | None = None) -> bytes:
    """Return an answer that closes the connection."""
    body = json.dumps({"error": {"code": code, "message": message}})
    again = "" if retry_after is None else f"retry-after: {retry_after}\r\n"
    head = (
        f"HTTP/1.1 {status} {status.phrase}\r\nconnection: close\r\n{again}"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        f"x-ms-error-code: {code}\r\n\r\n"
    )
    return f"{head}{body}".encode()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
