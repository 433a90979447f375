"""AttachedStreams: the standard streams of a container, attached from before its start."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from ...errors import BackendError
from ..client import translate_errors
from ..container import Container

if TYPE_CHECKING:
    from aiodocker.stream import Stream

_TAIL_BYTES = 2000  # of the output, for error messages


class AttachedStreams:
    """The streams of `container`. Use it only on the background loop.

    While they are attached, a container whose process 1 watches its standard input sees when this
    process dies.
    """

    def __init__(self, container: Container) -> None:
        self._container = container
        self._stream: Stream | None = None
        self._lease: Stream | None = None
        self._reader: asyncio.Task[None] | None = None
        self._tail = b""

    async def open(self) -> None:
        """Attach to the container. Raise `BackendError` on failure."""
        with translate_errors(f"Container {self._container.name} cannot be attached to"):
            stream: Stream = self._container.attach()
            self._stream = await stream.__aenter__()
        self._reader = asyncio.create_task(self._read_output(self._stream))

    async def start_lease(self) -> None:
        """Start a process in the container that shows other machines that it has an owner.

        See `orphans`. Raise `BackendError` on failure.
        """
        execution = await self._container.create_exec(["/bin/sh", "-c", "read _"])
        with translate_errors(f"Container {self._container.name} cannot run a command"):
            self._lease = await execution.start(detach=False).__aenter__()

    @property
    def has_ended(self) -> bool:
        """Whether the container has exited or the connection to it was lost."""
        return self._reader is None or self._reader.done()

    @property
    def output_tail(self) -> str:
        """The end of the container's output."""
        return self._tail.decode(errors="replace").strip()

    async def close(self) -> None:
        """Detach. A container that watches its standard input exits."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])
        for stream in (self._stream, self._lease):
            if stream is not None:
                await stream.close()

    async def _read_output(self, stream: Stream) -> None:
        with (
            contextlib.suppress(OSError, BackendError),
            translate_errors(f"Container {self._container.name} is no longer attached"),
        ):
            while (message := await stream.read_out()) is not None:
                self._tail = (self._tail + message.data)[-_TAIL_BYTES:]
