"""Conversation: one request to a live kernel, to its end, whatever the code does and whoever wants it to stop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine, Mapping
from typing import Any

from ...cancellation import Token
from ...events import Ended, Event
from ..frame_decoder import CANCELLED_TEXT, EXIT_CANCELLED, EXIT_TIMEOUT, TIMEOUT_TEXT
from .kernel import Alarm, Death, LiveKernel, Lost
from .messages import Execution

_GRACE = 1.5  # seconds that code has to end after each of two interrupts; the first may come before it has begun
_LOST = 5.0  # seconds of silence after a reply, after which the news of the end is taken for lost


class Conversation:
    """One request to `kernel`, for block `number`. `deaf` tells whether the code went on in spite of interrupts.

    flush   code that has the kernel send what is still on its way inside it; run after code that ended by itself
    """

    def __init__(self, kernel: LiveKernel, number: int, flush: str = "") -> None:
        self.deaf = False
        self._kernel, self._number, self._flush = kernel, number, flush

    async def events(
        self, code: str, seconds: float, token: Token | None
    ) -> AsyncGenerator[Event, None]:
        """Run `code`, and give what happens, `Ended` as the last. Afterwards the code has ended, if need be with its kernel.

        That holds as well when the generator is closed early, or its task cancelled.
        """
        inbox = self._kernel.inbox
        execution = Execution(self._number, await self._kernel.execute(code), self._kernel.session)
        try:
            with inbox.alarms(seconds, token):
                while not execution.ended:
                    news = await (inbox.take_within(_LOST) if execution.replied else inbox.take())
                    if isinstance(news, str):
                        async for event in self._stop(execution):
                            yield event
                        yield _end_of_alarm(execution, news)
                        continue
                    for event in _events_of(execution, news):
                        if isinstance(event, Ended):
                            async for late in self._late():
                                yield late
                        yield event
                    if execution.wants_input and not execution.ended:
                        async for event in self._stop(execution):
                            yield event
                        yield execution.end(1, "error")
        finally:
            if not execution.ended:
                await surely(self._abandon(execution))

    async def _stop(self, execution: Execution) -> AsyncGenerator[Event, None]:
        """Interrupt the code, and give what it still prints. When it goes on nevertheless, end the kernel."""
        execution.quieten()
        loop = asyncio.get_running_loop()
        for _ in range(2):
            await self._kernel.interrupt()
            until = loop.time() + _GRACE
            while (left := until - loop.time()) > 0:
                news = await self._kernel.inbox.take_within(left)
                if isinstance(news, Death):
                    return
                for event in (
                    _events_of(execution, news)
                    if news is not None and not isinstance(news, str)
                    else ()
                ):
                    if isinstance(event, Ended):
                        return
                    yield event
        self.deaf = True
        await self._kernel.close()

    async def _late(self) -> AsyncGenerator[Event, None]:
        """Give what the kernel had read but not yet sent when the code ended."""
        if not self._flush or self._kernel.inbox.death is not None:
            return
        execution = Execution(
            self._number, await self._kernel.execute(self._flush, silent=True), self._kernel.session
        )
        while True:
            news = await self._kernel.inbox.take_within(_LOST)
            if not isinstance(news, Mapping):
                return  # a limit that comes too late, or a death that is told of when it matters
            for event in execution.feed(news):
                if isinstance(event, Ended):
                    return
                yield event

    async def _abandon(self, execution: Execution) -> None:
        async with contextlib.aclosing(self._stop(execution)) as events:
            async for _ in events:
                pass


def _events_of(execution: Execution, news: object) -> list[Event]:
    """Give the events of a message, of what is lost, of a kernel's death, or of nothing where something was due."""
    if news is None:
        return [execution.end_as_replied()]
    if isinstance(news, Death):
        return [execution.end(news.exit_code, news.outcome, news.limit, news.message)]
    if isinstance(news, Lost):
        return (
            [execution.end(1, "error", message=news.message)]
            if news.request == execution.request
            else []
        )
    return [*execution.feed(news)]


def _end_of_alarm(execution: Execution, alarm: Alarm) -> Ended:
    match alarm:
        case "timeout":
            return execution.end(EXIT_TIMEOUT, "timeout", "wall_seconds", TIMEOUT_TEXT)
        case "cancelled":
            return execution.end(EXIT_CANCELLED, "cancelled", message=CANCELLED_TEXT)


async def surely(work: Coroutine[Any, Any, None]) -> None:
    """Do `work` to its end, whoever cancels; the cancellation that brought us here goes on afterwards."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    task.result()
