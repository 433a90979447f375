"""PortForward: forward a port of the host's loopback to a port of a container's loopback.

The data goes over the engine's exec streams: no port is published, the container needs no network,
and the engine may run on another machine. For each connection, a small program in the container
copies bytes between its standard streams and the port.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from ...errors import BackendError
from ..client import translate_errors
from ..container import Container
from .dockerfile import PORT_FORWARD

_log = logging.getLogger(__name__)
_CHUNK = 1 << 16
_STDOUT = 1


class PortForward:
    """Forward 127.0.0.1:`port` to port `target` in `container`. Use it only on the background loop.

    connect_seconds   how long a connection waits for the target to accept it
    """

    def __init__(self, container: Container, target: int, connect_seconds: float) -> None:
        self.port = 0
        self._container, self._target, self._connect_seconds = container, target, connect_seconds
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening, and close all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._forward(reader, writer)
        except (BackendError, OSError) as error:  # the client sees the connection close
            _log.debug("a connection to container %s was lost: %s", self._container.name, error)
        except asyncio.CancelledError:
            pass  # by `close`; nothing awaits this task
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        argv = [
            "python3",
            "-I",
            "-S",
            "-c",
            PORT_FORWARD,
            str(self._target),
            str(self._connect_seconds),
        ]
        execution = await self._container.create_exec(argv)
        async with contextlib.AsyncExitStack() as stack:
            with translate_errors(f"Container {self._container.name} cannot run a command"):
                stream = execution.start(detach=False)
                await stream.__aenter__()
            stack.push_async_callback(stream.close)

            async def send() -> None:
                while data := await reader.read(_CHUNK):
                    await stream.write_in(data)

            async def receive() -> None:
                while (message := await stream.read_out()) is not None:
                    if message.stream == _STDOUT:
                        writer.write(message.data)
                        await writer.drain()

            tasks = [asyncio.create_task(send()), asyncio.create_task(receive())]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if tasks[0].done():
                    return
                # The target has closed the connection, and all its data has been written.
                with contextlib.suppress(OSError):
                    writer.close()
                    await writer.wait_closed()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
