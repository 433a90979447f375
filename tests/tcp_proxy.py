"""TcpProxy: a TCP proxy that can break its connections, close, or drop data."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self

from cellblock import JupyterConnectionInfo
from cellblock.aio.background_loop import background_loop


class TcpProxy:
    """Forward connections to the server at `info`. `connection_info` is the address of the proxy.

    drop_responses   drop the data from the server
    drop_requests    drop the data to the server
    dropped          the data that was dropped
    """

    def __init__(self, info: JupyterConnectionInfo) -> None:
        self.drop_responses = self.drop_requests = False
        self.dropped = b""
        self._target = info
        self._server: asyncio.Server | None = None
        self._port = 0
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def connection_info(self) -> JupyterConnectionInfo:
        return JupyterConnectionInfo("127.0.0.1", False, self._port, self._target.token)

    def cut(self) -> None:
        """Break all connections, as a network failure does. Data in transit is lost."""
        background_loop().run(self._cut())

    def close(self) -> None:
        """Stop accepting connections and break the existing ones."""
        background_loop().run(self._close())

    def open(self) -> None:
        """Accept connections, always on the same port."""
        background_loop().run(self._open())

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._cut()

    async def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(
                self._target.host, self._target.port
            )
        except OSError:
            writer.transport.abort()
            return
        both = {writer, far_writer}
        self._writers |= both
        try:
            await asyncio.gather(
                self._pass(reader, far_writer, back=False),
                self._pass(far_reader, writer, back=True),
            )
        finally:
            self._writers -= both
            for end in both:
                end.transport.abort()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, back: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if self.drop_responses if back else self.drop_requests:
                    self.dropped += data
                else:
                    writer.write(data)
                    await writer.drain()
        writer.transport.abort()
