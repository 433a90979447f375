"""Relay: a port of this machine's loopback that leads to one of a container's loopback, over the engine's own streams.

Nothing is published, and the container needs no network; it works for engines on other machines too. For each connection a
small program in the container passes bytes on, to and from its standard streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from ...errors import BackendError
from ..container import Container
from .dockerfile import RELAY

_log = logging.getLogger(__name__)
_CHUNK = 1 << 16
_STDOUT = 1


class Relay:
    """Lead 127.0.0.1:`port` to `target` in `container`. Belongs to the engine's loop.

    patience   seconds for which a connection waits for the target to open
    """

    def __init__(self, container: Container, target: int, patience: float) -> None:
        self.port = 0
        self._container, self._target, self._patience = container, target, patience
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Take connections, on a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Take no more, and end those that there are."""
        if self._server is not None:
            self._server.close()
        for task in self._serving:
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await self._connect(reader, writer)
        except (
            BackendError,
            OSError,
        ) as error:  # the one who has connected sees the end of the connection
            _log.debug("a connection into container %s ended: %s", self._container.name, error)
        except asyncio.CancelledError:
            pass  # by `close`; a server's connections have no caller whom it could reach
        finally:
            self._serving.discard(task)
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        argv = ["python3", "-I", "-S", "-c", RELAY, str(self._target), str(self._patience)]
        execution = await self._container.execute(argv)
        async with execution.start(detach=False) as stream:

            async def forth() -> None:
                while data := await reader.read(_CHUNK):
                    await stream.write_in(data)

            async def back() -> None:
                while (message := await stream.read_out()) is not None:
                    if message.stream == _STDOUT:
                        writer.write(message.data)
                        await writer.drain()

            ways = [asyncio.create_task(forth()), asyncio.create_task(back())]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                if ways[0].done():
                    return
                # The target has hung up: what it said last has been written.
                with contextlib.suppress(OSError):
                    writer.close()
                    await writer.wait_closed()
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
