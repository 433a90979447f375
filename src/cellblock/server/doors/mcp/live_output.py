"""LiveOutput: send what a run writes as progress notifications while it runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Self

from ....events import Event, Output, PullProgress

_INTERVAL = 0.1  # seconds between two notifications
_MAX_CHARACTERS = 4_000  # of one notification

Report = Callable[[float, str], Awaitable[None]]


class LiveOutput:
    """Collect output and pass it to `report`, with a number that grows. Use it with `async with`.

    Output that comes faster than notifications may be sent is combined, and only its end is sent.
    A slow receiver does not hold up the run. What was not sent when the context ends is dropped:
    the result has all of it.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._text, self._has_text = "", asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._send_all())
        return self

    async def __aexit__(self, *_error: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    def add_event(self, event: Event) -> None:
        """Add the text of an event, if it is output or the progress of a pull."""
        match event:
            case Output(text=text):
                self._text += text
            case PullProgress():
                self._text += f"Pulling {event}\n"
            case _:
                return
        self._text = self._text[-_MAX_CHARACTERS:]
        self._has_text.set()

    async def _send_all(self) -> None:
        count = 0
        while True:
            await self._has_text.wait()
            self._has_text.clear()
            count, text, self._text = count + 1, self._text, ""
            await self._report(count, text)
            await asyncio.sleep(_INTERVAL)
