"""Turns: a lock that tasks of any event loop and thread take in turn."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import deque

_LOOK = 0.5  # seconds between two looks whether who has the turn can still give it back


class Turns:
    """`async with turns.next():` for one task at a time, in the order in which they came.

    An `asyncio.Lock` serves one loop alone. Here the turn goes on as well when the loop of the one who has it was closed,
    with his task unfinished in it.
    """

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.holder: _Turn | None = None
        self.waiting = deque[_Turn]()

    def next(self) -> _Turn:
        """Give the next turn, to be entered at once."""
        return _Turn(self)


class _Turn:
    """One task's turn."""

    def __init__(self, turns: Turns) -> None:
        self._turns, self._loop = turns, asyncio.get_running_loop()
        self._come: concurrent.futures.Future[None] | None = None

    async def __aenter__(self) -> None:
        turns = self._turns
        with turns.guard:
            if turns.holder is None or turns.holder._loop.is_closed():
                turns.holder = self
                return
            self._come = concurrent.futures.Future()
            turns.waiting.append(self)
        try:
            coming = asyncio.wrap_future(self._come)
            while not coming.done():
                await asyncio.wait([coming], timeout=_LOOK)
                self._look_after()
        except BaseException:
            if not self._come.cancel():  # it has come after all
                self._pass_on()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._pass_on()

    def _look_after(self) -> None:
        holder = self._turns.holder
        if holder is not None and holder._loop.is_closed():
            holder._pass_on()

    def _pass_on(self) -> None:
        turns = self._turns
        with turns.guard:
            if turns.holder is not self:
                return  # it was taken away
            turns.holder = None
            while turns.waiting and turns.holder is None:
                turns.holder = turns.waiting.popleft()._begin()

    def _begin(self) -> _Turn | None:
        """Tell who waits that it is his turn; `None`: he does not wait any more."""
        assert self._come is not None
        if self._loop.is_closed() or not self._come.set_running_or_notify_cancel():
            return None
        self._come.set_result(None)
        return self
