"""A session pool on loopback: `cellblock serve`, behind a layer that can be told to fail.

The layer knows only HTTP. Sessions are real: their code runs in the sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from urllib.parse import parse_qs

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from cellblock.server.app import create_app
from cellblock.server.http.services import Services
from cellblock.server.http.serving.tls import Certificate
from cellblock.server.sessions.store import SessionStore
from cellblock.server.settings import ServedSettings

NEVER = -1


@dataclass(frozen=True)
class Seen:
    """A request that reached the pool."""

    method: str
    path: str
    query: dict[str, str]
    authorization: str
    body: bytes = b""


@dataclass
class Fault:
    """What to answer instead of passing a request on: to those whose path ends so, `times` times.

    A status of 0 closes the connection without an answer; `NEVER` waits until the client gives up.
    If `after` is set, the request is carried out first.
    """

    path: str
    status: int
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    after: bool = False


class Pool:
    """The ASGI application: faults first, then the application of the server."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.url = ""
        self.seen: list[Seen] = []
        self.faults: list[Fault] = []
        self.refused_tokens: set[str] = set()

    def paths(self, suffix: str = "") -> list[str]:
        """Return the paths of the requests so far, below the prefix of the pool."""
        return [seen.path for seen in self.seen if seen.path.endswith(suffix)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        seen = _read(scope)
        self.seen.append(seen)
        if seen.authorization.removeprefix("Bearer ") in self.refused_tokens:
            await _answer(send, Fault("", 401, body=error_body("Unauthorized", "Token expired")))
            return
        fault = self._next_fault(seen.path)
        if fault is None:
            await self._app(scope, receive, send)
            return
        if fault.status == NEVER:
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        if fault.after:
            await self._app(scope, receive, _ignore)
        if not fault.status:
            raise ConnectionAbortedError("as a test wants it")  # uvicorn closes the connection
        await _answer(send, fault)

    def _next_fault(self, path: str) -> Fault | None:
        for fault in self.faults:
            if path.endswith(fault.path) and fault.times > 0:
                fault.times -= 1
                return fault
        return None


def error_body(code: str, message: str) -> bytes:
    """Return an error as the service writes it."""
    return json.dumps({"error": {"code": code, "message": message}}).encode()


def _read(scope: Scope) -> Seen:
    headers = dict(scope["headers"])
    query = parse_qs(scope["query_string"].decode(), keep_blank_values=True)
    return Seen(
        scope["method"],
        scope["path"],
        {name: values[0] for name, values in query.items()},
        headers.get(b"authorization", b"").decode(),
    )


async def _answer(send: Send, fault: Fault) -> None:
    headers = [(name.encode(), value.encode()) for name, value in fault.headers.items()]
    if "Content-Length" not in fault.headers:
        headers.append((b"content-length", str(len(fault.body)).encode()))
    await send({"type": "http.response.start", "status": fault.status, "headers": headers})
    await send({"type": "http.response.body", "body": fault.body})


async def _ignore(_message: object) -> None:
    """Send nothing."""


@contextlib.contextmanager
def running_pool(tls: Certificate | None = None) -> Generator[Pool]:
    """Yield a pool that accepts requests, and end it with its sessions."""
    # asyncio sends small answers at once only if the socket names its protocol.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    store = SessionStore(ServedSettings())
    pool = Pool(create_app(Services(store)))
    scheme = "http" if tls is None else "https"
    pool.url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/subscriptions/s/sessionPools/p"
    config = uvicorn.Config(pool, log_level="error", log_config=None)
    if tls is not None:
        config.ssl_certfile, config.ssl_keyfile = tls.certificate, tls.private_key
    server = _Server(config)

    async def serve() -> None:
        async with store:
            await server.serve([listener])

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    try:
        assert server.is_up.wait(30), "the pool did not start"
        yield pool
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()


class _Server(uvicorn.Server):
    """A server that tells another thread when it accepts connections."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()
