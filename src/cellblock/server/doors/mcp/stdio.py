"""Serve MCP over standard input and output, for one client."""

from __future__ import annotations

import asyncio
import contextlib
import select
import sys
from collections.abc import AsyncGenerator
from typing import Any, cast

import anyio
from mcp.server.stdio import stdio_server

from ...sessions.store import SessionStore
from ...settings import ServedSettings
from .server import SandboxServer

_MAX_LINE_BYTES = 256 * 1024 * 1024


async def serve_stdio(settings: ServedSettings, *, confirm: bool = False, advice: str = "") -> None:
    """Serve one client until it closes standard input. Then end all sessions.

    The client is answered while the sandbox starts, since packages may take longer to install than
    clients wait. If the sandbox cannot start, tools answer with the reason, because clients do not
    show why a server ended; the reason is raised at the end of the input.
    """
    store = SessionStore(settings)
    start = asyncio.create_task(_start(store))

    async def get_store() -> SessionStore:
        return await asyncio.shield(start)

    server = SandboxServer(get_store, confirm=confirm, advice=advice)
    serve = asyncio.create_task(_serve(server))
    try:
        await serve
        if start.done():
            start.result()
    finally:
        await _cancel(serve)
        await _cancel(start)
        if not start.cancelled() and start.exception() is None:
            await store.__aexit__(None, None, None)


async def _start(store: SessionStore) -> SessionStore:
    return await store.__aenter__()


async def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})


async def _serve(server: SandboxServer) -> None:
    # The SDK's own `run_stdio_async` reads in a thread.
    lowlevel = server._lowlevel_server  # pyright: ignore[reportPrivateUsage] - the SDK's
    async with (
        _stdin_lines() as lines,
        stdio_server(stdin=cast("anyio.AsyncFile[str] | None", lines)) as (reader, writer),
    ):
        await lowlevel.run(reader, writer, lowlevel.create_initialization_options())


@contextlib.asynccontextmanager
async def _stdin_lines() -> AsyncGenerator[AsyncGenerator[str] | None]:
    """Yield the lines of standard input; None if it never blocks, as files and /dev/null.

    A thread that waits in `read`, as the SDK has by default, cannot be cancelled: SIGTERM would
    have no effect until the client closes standard input.
    """
    if not _can_wait(0):
        yield None
        return
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_MAX_LINE_BYTES)
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    try:
        yield _decode_lines(reader)
    finally:
        transport.close()


def _can_wait(descriptor: int) -> bool:
    """Return True if the event loop can wait for input. The kernel refuses files, for example."""
    with select.epoll() as poll:
        try:
            poll.register(descriptor, select.EPOLLIN)
        except PermissionError:
            return False
    return True


async def _decode_lines(reader: asyncio.StreamReader) -> AsyncGenerator[str]:
    while line := await reader.readline():
        yield line.decode(errors="replace")
