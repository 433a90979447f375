"""PrintProgress: what of a block is printed, for prompts that must come after its output."""

from __future__ import annotations

import asyncio

from ...events import Event, Started


class PrintProgress:
    """The number of printed events of the running block. Belongs to one event loop."""

    def __init__(self) -> None:
        self._count, self._changed = 0, asyncio.Condition()

    async def add(self, event: Event) -> None:
        """Count an event that was printed. `Started` begins a new block."""
        async with self._changed:
            self._count = 0 if isinstance(event, Started) else self._count + 1
            self._changed.notify_all()

    async def wait(self, count: int) -> None:
        """Wait until `count` events of the block are printed, as `InputPrompt` counts them."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._count >= count)
