"""ItemStream: what a generator of a node yields, for a caller who asks for it in batches."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

_MAX_ITEMS = 256  # that wait for the caller


class ItemStream:
    """Runs `items` in a task, which waits while the caller is slow."""

    def __init__(self, items: AsyncGenerator[Any]) -> None:
        self._queue = asyncio.Queue[Any](_MAX_ITEMS)
        self._error: BaseException | None = None
        self._task = asyncio.ensure_future(self._work(items))

    async def _work(self, items: AsyncGenerator[Any]) -> None:
        try:
            async with contextlib.aclosing(items):
                async for item in items:
                    await self._queue.put(item)
        except Exception as error:
            self._error = error
        await self._queue.put(_End)

    async def next_items(self) -> tuple[list[Any], bool]:
        """Wait for items, and return all there are, and whether they are the last.

        Raise what the generator has raised.
        """
        items = [await self._queue.get()]
        while not self._queue.empty():
            items.append(self._queue.get_nowait())
        is_done = items[-1] is _End
        if is_done:
            items.pop()
            if self._error is not None and items:  # first what was before it
                self._queue.put_nowait(_End)
                return items, False
            if self._error is not None:
                raise self._error
        return items, is_done

    async def close(self) -> None:
        """End the generator."""
        self._task.cancel()
        await asyncio.wait({self._task})


class _End:
    """Comes after the last item."""
