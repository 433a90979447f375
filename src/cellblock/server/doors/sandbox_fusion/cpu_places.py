"""CpuPlaces: run one program on each CPU, so that short ones do not slow each other down."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator

_LONG_SECONDS = 2.0


class CpuPlaces:
    """Places for programs, one for each CPU.

    A program that has taken `_LONG_SECONDS` gives up its place and goes on: one that loops or
    sleeps must not hold up those that wait.
    """

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(os.cpu_count() or 1)

    @contextlib.asynccontextmanager
    async def place(self) -> AsyncGenerator[None]:
        """Wait for a place, and hold it until the context or the time ends."""
        await self._free.acquire()
        release = asyncio.get_running_loop().call_later(_LONG_SECONDS, self._free.release)
        try:
            yield
        finally:
            if release.when() > asyncio.get_running_loop().time():
                release.cancel()
                self._free.release()
