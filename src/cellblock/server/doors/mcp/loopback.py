"""Serve only MCP over HTTP on the loopback interface, without keys."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Generator

import uvicorn
from starlette.applications import Starlette

from ....errors import BackendError
from ...http.services import Services
from ...http.serving.signals import stop_signals
from ...sessions.store import SessionStore
from ...settings import ServedSettings
from .http import McpDoor

_HOST = "127.0.0.1"
_DRAIN_SECONDS = 2  # clients keep a stream open all the time, which would delay the end


async def serve_loopback(
    settings: ServedSettings,
    port: int,
    on_ready: Callable[[str], object],
    *,
    confirm: bool = False,
    advice: str = "",
) -> int:
    """Serve MCP until SIGINT or SIGTERM, then end all sessions. Return the exit code.

    `on_ready` is called with the URL once requests are answered; port 0 means a free one. Raise
    `BackendError` if the port is in use, and what starting the sandbox raises.
    """
    with _listen(port) as listener:
        async with SessionStore(settings) as store:
            door = McpDoor(Services(store), confirm=confirm, advice=advice)
            app = Starlette(routes=[door.route], lifespan=door.lifespan)
            server = _Server(
                uvicorn.Config(
                    app,
                    log_level="warning",
                    access_log=False,
                    timeout_graceful_shutdown=_DRAIN_SECONDS,
                )
            )
            url = f"http://{_HOST}:{listener.getsockname()[1]}{door.path}"
            server.on_ready = lambda: on_ready(url)
            await server.serve([listener])
    return server.exit_code


class _Server(uvicorn.Server):
    """A server that does not raise its signals again, because sessions have to be ended after."""

    exit_code = 0
    on_ready: Callable[[], object] = staticmethod(lambda: None)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to answer requests."""
        await super().startup(sockets)
        self.on_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Stop on signals."""
        with stop_signals(self._stop):
            yield

    def _stop(self, number: int) -> None:
        self.exit_code = 128 + number
        self.handle_exit(number, None)


def _listen(port: int) -> socket.socket:
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_HOST, port))
        listener.listen()
        return listener
    except OSError as error:
        listener.close()
        raise BackendError(
            f"The server cannot listen on {_HOST} port {port}: {error.strerror}. "
            "Choose another port with --http."
        ) from error
