"""Attempts: give a client that was not answered in time the same program when it tries again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from ...refusals import NotInTime

T = TypeVar("T")
_RETRY_SECONDS = 10.0
# A request that comes sooner after an answer is another one: clients wait for a second or more.
_RETRY_AFTER = 0.9


class Attempts(Generic[T]):
    """Work that continues for `_RETRY_SECONDS` after a request that was not answered in time.

    The next request with the same key gets it: its place in the queue, or what it has returned.
    """

    def __init__(self) -> None:
        # With the time at which each was left, the oldest first.
        self._left = dict[Hashable, list[tuple[float, asyncio.Task[T]]]]()

    async def result(
        self, key: Hashable, start: Callable[[], Coroutine[Any, Any, T]], seconds: float
    ) -> T:
        """Return what the work of an earlier request returns, or else what `start` returns.

        Raise `NotInTime` after `seconds`. Cancelling this cancels the work.
        """
        loop = asyncio.get_running_loop()
        left = self._left.get(key)
        if left and left[0][0] + _RETRY_AFTER <= loop.time():
            _, task = left.pop(0)
        else:
            task = asyncio.ensure_future(start())
        try:
            await asyncio.wait({task}, timeout=seconds)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        if task.done():
            return task.result()
        entry = loop.time(), task
        self._left.setdefault(key, []).append(entry)
        loop.call_later(_RETRY_SECONDS, self._drop, key, entry)
        raise NotInTime("The program has not ended yet. Send the same request again.")

    def _drop(self, key: Hashable, entry: tuple[float, asyncio.Task[T]]) -> None:
        left, (_, task) = self._left.get(key, []), entry
        if entry in left:
            left.remove(entry)
            if not task.cancel() and not task.cancelled():
                task.exception()  # so that asyncio does not log it as never retrieved
        if not left:
            self._left.pop(key, None)
