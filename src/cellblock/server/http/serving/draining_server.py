"""DrainingServer: an HTTP server that keeps listening until the current runs have ended."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from collections.abc import Callable, Generator

import uvicorn

from ..services import Services
from .signals import stop_signals

_ANSWER_SECONDS = 2.0  # for the requests of ended runs to send their answers


class DrainingServer(uvicorn.Server):
    """An HTTP server that SIGTERM or SIGINT stops in steps.

    1. New runs and sessions are refused. All other requests are answered.
    2. When no run is active or waiting, the port is closed, and current requests end.

    After `drain_seconds`, or at a second signal, the runs and requests that remain are ended. Their
    answer is `Draining`. `on_ready` is called once requests are answered.
    """

    def __init__(self, config: uvicorn.Config, services: Services, drain_seconds: float) -> None:
        super().__init__(config)
        self.on_ready: Callable[[], object] = lambda: None
        self._services, self._drain_seconds = services, drain_seconds
        self._draining: asyncio.Task[None] | None = None
        self._limit: asyncio.Timeout | None = None  # of the first two steps, while they last

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Drain at the first signal, and end at the second one."""
        with stop_signals(self._on_signal):
            yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to answer requests."""
        await super().startup(sockets)
        self.on_ready()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal, and until the last request has its answer."""
        await super().serve(sockets)
        if self._draining is not None:
            await self._draining

    def _on_signal(self, number: int) -> None:
        if self._draining is None:
            self._services.store.drain()
            self._draining = asyncio.ensure_future(self._drain(number))
        elif self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time())

    async def _drain(self, number: int) -> None:
        try:
            async with asyncio.timeout(self._drain_seconds) as self._limit:
                await self._services.store.queue.wait_until_empty()
                self._close_port(number)
                while tasks := set(self.server_state.tasks):
                    await asyncio.wait(tasks)
        except TimeoutError:
            self._limit = None
            await self._end_requests(number)
        self._limit = None

    def _close_port(self, number: int) -> None:
        """Let uvicorn close the port and idle connections, and wait for the others."""
        # `_drain` ends them. The limit is for a request that does not end then.
        self.config.timeout_graceful_shutdown = math.ceil(self._drain_seconds + 3 * _ANSWER_SECONDS)
        self.handle_exit(number, None)  # which ends event streams of MCP too

    async def _end_requests(self, number: int) -> None:
        self._services.store.end_runs()
        if not self.should_exit:
            self._close_port(number)
        await self._wait_for_answers()
        self._services.requests.end()
        await self._wait_for_answers()
        for connection in list(self.server_state.connections):
            connection.transport.abort()  # the client does not read its answer

    async def _wait_for_answers(self) -> None:
        if tasks := set(self.server_state.tasks):
            await asyncio.wait(tasks, timeout=_ANSWER_SECONDS)
