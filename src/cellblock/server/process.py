"""Run the server in this process until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import uvicorn
from sqlalchemy import Engine
from starlette.types import ASGIApp

from ..errors import BackendError
from ..sandbox.cgroups import use_delegated_group
from .app import MCP_MISSING, create_app, mcp_missing_route
from .cluster.factory import SESSION_RESOURCES, ClusterSessions
from .http.local_only import is_loopback
from .http.request_log import JsonFormatter
from .http.services import Services
from .http.serving.connections import accept_errors, limited_connections
from .http.serving.draining_server import DrainingServer
from .http.serving.tls_files import check_tls_files
from .keys.key_store import KeyStore
from .sessions.executors import SessionFactory
from .sessions.factory import local_factory
from .sessions.store import SessionStore
from .settings import ServedSettings
from .state.database import default_database_url, open_database
from .state.journal import StateJournal
from .temporary_folder import own_temporary_folder

_BACKLOG = 1024
PrintNote = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Where a server listens and how it knows its clients.

    host, port      the address; port 0 means any free one
    name            what the audit log calls the server; None means its host and port
    database_url    the database of its state; None means the SQLite file of this user
    audit_days      how long the audit log is kept
    needs_keys      False accepts all clients, and keeps no state; only on a loopback address
    has_console     whether people have the pages at /console
    certificate, private_key   PEM files for TLS; None serves plain HTTP
    drain_seconds   how long current runs and requests may take after SIGTERM
    ray             address of the Ray cluster whose nodes have the sessions; None: this machine
    session_resources   what a session reserves of a node of the cluster, by the names of Ray
    stall_seconds   how long a client may not send the rest of a request, or not read an answer
    keep_alive_seconds   how long a connection without a request stays open, which has to be longer
                    than a load balancer keeps it
    """

    host: str = "127.0.0.1"
    port: int = 8000
    name: str | None = None
    database_url: str | None = None
    audit_days: float = 365.0
    needs_keys: bool = True
    has_console: bool = True
    certificate: Path | None = None
    private_key: Path | None = None
    drain_seconds: int = 30
    stall_seconds: float = 30.0
    keep_alive_seconds: int = 75
    ray: str | None = None
    session_resources: Mapping[str, float] = field(default_factory=lambda: SESSION_RESOURCES)

    def __post_init__(self) -> None:
        if not self.needs_keys and not is_loopback(self.host):
            raise ValueError(
                f"A server without keys may listen on a loopback address only, not on "
                f"{self.host!r}. Leave out --no-auth, or use --host 127.0.0.1."
            )
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("TLS needs both a certificate and its private key.")


async def serve(settings: ServerSettings, sessions: ServedSettings, print_note: PrintNote) -> None:
    """Serve until SIGTERM or SIGINT, then end current requests and all sessions.

    Raise `BackendError` if the certificate, the address, the database or the sandbox cannot be
    used, and `WorkspaceError` if the disk is full.
    """
    if settings.certificate is not None and settings.private_key is not None:
        check_tls_files(settings.certificate, settings.private_key)
    use_delegated_group()
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    asyncio.get_running_loop().set_exception_handler(accept_errors())
    async with contextlib.AsyncExitStack() as stack:
        folder = stack.enter_context(
            own_temporary_folder(
                lambda path: print_note(f"removing files of a killed server: {path}")
            )
        )
        engine = await _open_state(settings, stack)
        keys = None if engine is None else KeyStore(engine)
        if keys is not None and not any(key.state == "active" for key in keys.list_keys()):
            print_note("there is no API key yet: create one with `cellblock keys add NAME`")
        listener = stack.enter_context(_listen(settings))
        packages = ", ".join(sessions.packages)
        print_note(f"starting with {packages}" if packages else "starting")
        journal = None
        if engine is not None:
            name = settings.name or f"{socket.gethostname()}:{listener.getsockname()[1]}"
            journal = StateJournal(engine, name, settings.audit_days)
            await stack.enter_async_context(journal)
        store = SessionStore(sessions, journal, _factory(settings, sessions))
        await stack.enter_async_context(store)
        services = Services(store, keys, settings.stall_seconds, engine)
        app = _make_app(services, settings, print_note)
        if settings.certificate is None and not is_loopback(settings.host):
            print_note("keys are sent in clear text: use --certificate, or a TLS proxy")
        server = DrainingServer(_config(app, settings), services, settings.drain_seconds)
        url = _url(settings, listener)

        def on_ready() -> None:
            (folder / "url").write_text(url)  # for health checks
            print_note(f"serving on {url}")

        server.on_ready = on_ready
        await server.serve([listener])


async def _open_state(settings: ServerSettings, stack: contextlib.AsyncExitStack) -> Engine | None:
    """Return the database, which `stack` closes; None for a server without keys."""
    if not settings.needs_keys:
        return None
    url = settings.database_url or default_database_url()
    engine = await asyncio.to_thread(open_database, url)
    stack.callback(engine.dispose)
    return engine


def _factory(settings: ServerSettings, sessions: ServedSettings) -> SessionFactory:
    if settings.ray is None:
        return local_factory(sessions)
    try:
        return ClusterSessions(sessions, settings.ray, settings.session_resources)
    except ModuleNotFoundError as error:
        raise BackendError(str(error)) from error


def _make_app(services: Services, settings: ServerSettings, print_note: PrintNote) -> ASGIApp:
    """Return the application, with the MCP door if its extra is installed."""
    if find_spec("mcp") is None:
        print_note(f"/mcp is not served: {MCP_MISSING}")
        return create_app(services, [mcp_missing_route()], has_console=settings.has_console)
    from .doors.mcp.http import McpDoor

    door = McpDoor(services)
    return create_app(services, [door.route], door.lifespan, has_console=settings.has_console)


def _config(app: ASGIApp, settings: ServerSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=limited_connections(settings.stall_seconds),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=settings.keep_alive_seconds,
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
    # At INFO, other loggers have a line for each session, and errors of tools.
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("cellblock.server").setLevel(logging.INFO)
    logging.captureWarnings(True)
