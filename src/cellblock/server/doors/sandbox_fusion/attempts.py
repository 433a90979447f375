"""Attempts: give a client that was not answered in time the same program when it tries again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from ...refusals import NotInTime

T = TypeVar("T")
_RETRY_SECONDS = 10.0


class Attempts(Generic[T]):
    """Work that goes on for `_RETRY_SECONDS` after a request that was not answered in time.

    The next request with the same key gets it: its place in the queue, or what it has returned.
    """

    def __init__(self) -> None:
        self._left = dict[Hashable, list[asyncio.Task[T]]]()  # the oldest first

    async def result(
        self, key: Hashable, start: Callable[[], Coroutine[Any, Any, T]], seconds: float
    ) -> T:
        """Return what the work of an earlier request returns, or else what `start` returns.

        Raise `NotInTime` after `seconds`. Cancelling this cancels the work.
        """
        left = self._left.get(key)
        task = left.pop(0) if left else asyncio.ensure_future(start())
        try:
            await asyncio.wait({task}, timeout=seconds)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        if task.done():
            return task.result()
        self._left.setdefault(key, []).append(task)
        asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._drop, key, task)
        raise NotInTime("The program has not ended yet. Send the same request again.")

    def _drop(self, key: Hashable, task: asyncio.Task[T]) -> None:
        left = self._left.get(key, [])
        if task in left:
            left.remove(task)
            if not task.cancel() and not task.cancelled():
                task.exception()  # so that asyncio does not log it as never retrieved
        if not left:
            self._left.pop(key, None)
