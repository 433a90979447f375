"""Run the server in this process until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from ...errors import BackendError
from ..keys.database import default_database_url, open_database
from ..keys.key_store import KeyStore
from ..sessions.store import SessionStore
from ..settings import SessionSettings
from .app import create_app
from .connections import limited_connections
from .local_only import is_loopback
from .request_log import JsonFormatter
from .services import Services

_BACKLOG = 1024
_MAX_CONNECTIONS = 4096
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
PrintNote = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Where a server listens and how it knows its clients.

    host, port      the address; port 0 means any free one
    database_url    the database of keys; None means the SQLite file of this user
    needs_keys      False accepts all clients; only on a loopback address
    certificate, private_key   PEM files for TLS; None serves plain HTTP
    drain_seconds   how long current requests may take after SIGTERM
    stall_seconds   how long a client may not send the rest of its headers, or not read an answer
    """

    host: str = "127.0.0.1"
    port: int = 8000
    database_url: str | None = None
    needs_keys: bool = True
    certificate: Path | None = None
    private_key: Path | None = None
    drain_seconds: int = 30
    stall_seconds: float = 30.0

    def __post_init__(self) -> None:
        if not self.needs_keys and not is_loopback(self.host):
            raise ValueError(
                f"A server without keys may listen on a loopback address only, not on "
                f"{self.host!r}. Use keys, or host='127.0.0.1'."
            )
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("TLS needs both a certificate and its private key.")


async def serve(settings: ServerSettings, sessions: SessionSettings, print_note: PrintNote) -> None:
    """Serve until SIGTERM or SIGINT, then end current requests and all sessions.

    Raise `BackendError` if the address, the database or the sandbox cannot be used.
    """
    keys = None
    if settings.needs_keys:
        url = settings.database_url or default_database_url()
        keys = KeyStore(await asyncio.to_thread(open_database, url))
        if not any(key.state == "active" for key in keys.list_keys()):
            print_note("there is no API key yet: create one with `cellblock keys add NAME`")
    try:
        with _listen(settings) as listener:
            async with SessionStore(sessions, keys) as store:
                app = _make_app(Services(store, keys))
                if settings.certificate is None and not is_loopback(settings.host):
                    print_note("keys are sent in clear text: use --certificate, or a TLS proxy")
                print_note(f"serving on {_url(settings, listener)}")
                await _HttpServer(_config(app, settings), store).serve([listener])
    finally:
        if keys is not None:
            keys.close()


def _make_app(services: Services) -> ASGIApp:
    """Return the application, with the MCP door if its extra is installed."""
    if find_spec("mcp") is None:
        return create_app(services)
    from ..doors.mcp.http import McpDoor

    door = McpDoor(services)
    return create_app(services, [door.route], door.lifespan)


class _HttpServer(uvicorn.Server):
    """A server that refuses new runs as soon as it is told to stop."""

    def __init__(self, config: uvicorn.Config, store: SessionStore) -> None:
        super().__init__(config)
        self._store = store

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Stop on signals. They are not raised again, because sessions have to be ended after."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._stop, number)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    def _stop(self, number: int) -> None:
        self._store.drain()
        self.handle_exit(number, None)


def _config(app: ASGIApp, settings: ServerSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=limited_connections(settings.stall_seconds),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=settings.drain_seconds,
        limit_concurrency=_MAX_CONNECTIONS,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.private_key,
    )


def _listen(settings: ServerSettings) -> socket.socket:
    """Return the listening socket. Raise `BackendError`."""
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
        family, _, _, _, address = found[0]
        # With the protocol named, asyncio sets TCP_NODELAY: otherwise small answers wait 40 ms.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as error:
        raise BackendError(f"The host {settings.host!r} cannot be used: {error}.") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
        return listener
    except OSError as error:
        listener.close()
        raise BackendError(
            f"The server cannot listen on {settings.host} port {settings.port}: {error.strerror}. "
            "Choose another --port."
        ) from error


def _url(settings: ServerSettings, listener: socket.socket) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    scheme = "http" if settings.certificate is None else "https"
    return f"{scheme}://{host}:{listener.getsockname()[1]}"


def log_as_json() -> None:
    """Write the log of this process to standard error, one JSON object a line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("cellblock").setLevel(logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.getLogger("mcp").setLevel(logging.WARNING)  # at INFO it has errors of tools
