"""KernelRequest: run code in a kernel, with a time limit and cancellation."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping

from ...cancellation import Token
from ...events import Ended, Event
from ..frame_decoder import CANCELLED_TEXT, EXIT_CANCELLED, EXIT_TIMEOUT, TIMEOUT_TEXT
from .inbox import KernelDied, Message, ReplyLost, StopReason
from .kernel import Kernel, run_shielded
from .messages import MessageDecoder

# Seconds for the code to end after each of two interrupts. The first may come before it has begun.
_INTERRUPT_GRACE = 1.5
# Seconds without a message after the reply, until the idle status is taken to be lost.
_IDLE_GRACE = 5.0


class KernelRequest:
    """One execute request to `kernel`, for block `block`.

    flush               code to run after code that ended by itself, so that the kernel sends output
                        that it has read but not sent yet
    silent              whether the code is left out of the kernel's history
    ignored_interrupt   whether the code did not end when it was interrupted
    """

    def __init__(
        self, kernel: Kernel, block: int, flush: str = "", *, silent: bool = False
    ) -> None:
        self.ignored_interrupt = False
        self.kernel, self._block, self._flush, self._silent = kernel, block, flush, silent

    async def run(
        self, code: str, seconds: float | None, token: Token | None
    ) -> AsyncGenerator[Event, None]:
        """Run `code`, and yield its events; `Ended` is the last one.

        Interrupt the code after `seconds`, when `token` is cancelled, and when the generator is
        closed early. If the code ignores the interrupts, close the kernel.
        """
        inbox = self.kernel.inbox
        request = await self.kernel.send_execute(code, silent=self._silent)
        decoder = MessageDecoder(self._block, request, self.kernel.session)
        try:
            with inbox.stop_requests(seconds, token):
                while not decoder.ended:
                    item = await (
                        inbox.next_item_within(_IDLE_GRACE)
                        if decoder.replied
                        else inbox.next_item()
                    )
                    if isinstance(item, str):
                        async for event in self._interrupt(decoder):
                            yield event
                        yield _end_for_stop(decoder, item)
                        continue
                    for event in _decode_item(decoder, item):
                        if isinstance(event, Ended):
                            async for late in self._flush_output():
                                yield late
                        yield event
                    # Blocks cannot answer input(): fail now instead of at the time limit.
                    if decoder.wants_input and not decoder.ended:
                        async for event in self._interrupt(decoder):
                            yield event
                        yield decoder.finish(1, "error")
        finally:
            if not decoder.ended:
                await run_shielded(self._interrupt_silently(decoder))

    async def _interrupt(self, decoder: MessageDecoder) -> AsyncGenerator[Event, None]:
        """Interrupt the code, and yield its last output. If it does not end, close the kernel."""
        decoder.suppress_errors()
        loop = asyncio.get_running_loop()
        for _ in range(2):
            await self.kernel.interrupt()
            deadline = loop.time() + _INTERRUPT_GRACE
            while (left := deadline - loop.time()) > 0:
                item = await self.kernel.inbox.next_item_within(left)
                if isinstance(item, KernelDied):
                    return
                for event in (
                    _decode_item(decoder, item)
                    if item is not None and not isinstance(item, str)
                    else ()
                ):
                    if isinstance(event, Ended):
                        return
                    yield event
        self.ignored_interrupt = True
        await self.kernel.close()

    async def _flush_output(self) -> AsyncGenerator[Event, None]:
        """Yield output that the kernel had read but not sent when the code ended."""
        if not self._flush or self.kernel.is_dead:
            return
        decoder = MessageDecoder(
            self._block,
            await self.kernel.send_execute(self._flush, silent=True),
            self.kernel.session,
        )
        while True:
            item = await self.kernel.inbox.next_item_within(_IDLE_GRACE)
            if not isinstance(item, Mapping):
                return  # a stop request that came too late, or a death that the next block reports
            for event in decoder.decode(item):
                if isinstance(event, Ended):
                    return
                yield event

    async def _interrupt_silently(self, decoder: MessageDecoder) -> None:
        async with contextlib.aclosing(self._interrupt(decoder)) as events:
            async for _ in events:
                pass


def _decode_item(
    decoder: MessageDecoder, item: Message | ReplyLost | KernelDied | None
) -> list[Event]:
    """Return the events of an item of the inbox. None means that the idle status was lost."""
    if item is None:
        return [decoder.finish_as_replied()]
    if isinstance(item, KernelDied):
        return [decoder.finish(item.exit_code, item.outcome, item.limit, item.message)]
    if isinstance(item, ReplyLost):
        return (
            [decoder.finish(1, "error", message=item.message)]
            if item.request == decoder.request
            else []
        )
    return [*decoder.decode(item)]


def _end_for_stop(decoder: MessageDecoder, reason: StopReason) -> Ended:
    match reason:
        case "timeout":
            return decoder.finish(EXIT_TIMEOUT, "timeout", "wall_seconds", TIMEOUT_TEXT)
        case "cancelled":
            return decoder.finish(EXIT_CANCELLED, "cancelled", message=CANCELLED_TEXT)
