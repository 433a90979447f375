"""CpuPlace: run one program on each CPU, so that short ones do not slow each other down."""

from __future__ import annotations

import asyncio

LONG_SECONDS = 2.0


class CpuPlace:
    """One of the `free` places. The context waits for it and holds it until `leave`.

    A program that takes `LONG_SECONDS` leaves its place and continues: one that loops or sleeps
    must not hold up those that wait.
    """

    def __init__(self, free: asyncio.Semaphore) -> None:
        self._free = free
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        await self._free.acquire()
        self._timer = asyncio.get_running_loop().call_later(LONG_SECONDS, self.leave)

    async def __aexit__(self, *_error: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Leave the place to the next program. Do nothing if that has happened."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            self._free.release()
