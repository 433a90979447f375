"""CancellingAwaits: cancel work at a chosen await."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any


class CancellingAwaits:
    """Awaits `work`, and cancels its task once: at the await with this number, from 1 on.

    late   cancel when what is awaited is done, but before the task knows
    """

    def __init__(self, work: Coroutine[Any, Any, None], number: int, *, late: bool) -> None:
        self._work, self._number, self._late = work, number, late
        self.count = 0

    async def run(self) -> None:
        await self

    def __await__(self) -> Generator[Any, Any, None]:
        task, step = asyncio.current_task(), self._work.send
        assert task is not None
        value: Any = None

        def cancel(_future: asyncio.Future[Any]) -> None:
            task.cancel()

        while True:
            try:
                future = step(value)
            except StopIteration:
                return
            self.count += 1
            if self.count == self._number:
                if self._late and future is not None:
                    future.add_done_callback(cancel)
                else:
                    task.cancel()
            try:
                step, value = self._work.send, (yield future)
            except BaseException as error:
                step, value = self._work.throw, error
