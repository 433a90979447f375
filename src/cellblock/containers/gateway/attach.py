"""Attachment: our end of a container's standard streams. What it says is heard, and it can hold on to us."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from ...errors import BackendError
from ..client import translated
from ..container import Container

if TYPE_CHECKING:
    from aiodocker.stream import Stream

_WORDS = 2000  # bytes of what it said last


class Attachment:
    """The streams of `container`, from before its start until its end. Belongs to the engine's loop."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self._stream: Stream | None = None
        self._hold: Stream | None = None
        self._listening: asyncio.Task[None] | None = None
        self._said = b""

    async def open(self) -> None:
        """Attach to it. Raises `BackendError`."""
        with translated(f"Container {self._container.name} cannot be heard"):
            stream: Stream = self._container._inner.attach(stdin=True, stdout=True, stderr=True)
            self._stream = await stream.__aenter__()
        self._listening = asyncio.create_task(self._listen(self._stream))

    async def hold(self) -> None:
        """Have a process of ours run in the container, for all to see that it has an owner; see `owners`."""
        execution = await self._container.execute(["/bin/sh", "-c", "read _"])
        with translated(f"Container {self._container.name} runs nothing more"):
            self._hold = await execution.start(detach=False).__aenter__()

    @property
    def has_ended(self) -> bool:
        """Whether the container has ended, or the connection to it."""
        return self._listening is None or self._listening.done()

    @property
    def last_words(self) -> str:
        """What the container said last."""
        return self._said.decode(errors="replace").strip()

    async def close(self) -> None:
        """Let go: a container that holds on to us ends."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        for stream in (self._stream, self._hold):
            if stream is not None:
                await stream.close()

    async def _listen(self, stream: Stream) -> None:
        with (
            contextlib.suppress(OSError, BackendError),
            translated(f"Container {self._container.name} is heard no more"),
        ):
            while (message := await stream.read_out()) is not None:
                self._said = (self._said + message.data)[-_WORDS:]
