"""Inbox: the messages of a kernel that have not been read yet, and the reasons to stop waiting."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...cancellation import Token, on_cancel
from ...events import Outcome

_MAX_MESSAGES = 512  # `add_message` waits while so many are unread
EXIT_KERNEL_DIED = 137

Message = Mapping[str, Any]
StopReason = Literal["timeout", "cancelled"]


@dataclass(frozen=True)
class KernelDied:
    """The kernel has exited or can no longer be reached. `message` gives the reason if known."""

    exit_code: int = EXIT_KERNEL_DIED
    outcome: Outcome = "killed"
    limit: str | None = None
    message: str = "\nKilled: the kernel died."


@dataclass(frozen=True)
class ReplyLost:
    """The reply to `request` was lost. It is not known whether the code ran or how it ended."""

    request: str
    message: str = (
        "\nLost: the connection to the kernel was lost, and with it the result of the block."
    )


InboxItem = Message | ReplyLost | StopReason | KernelDied


class Inbox:
    """A queue of a kernel's messages for one reader.

    A stop reason (timeout, cancellation) is returned before all messages, the kernel's death after
    them.
    """

    def __init__(self) -> None:
        self.kernel_died: KernelDied | None = None
        self._messages: deque[Message | ReplyLost] = deque()
        self._stop_reason: StopReason | None = None
        self._has_item = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()

    async def add_message(self, message: Message | ReplyLost) -> None:
        """Add a message; wait while the inbox is full."""
        await self._has_room.wait()
        self._messages.append(message)
        self._has_item.set()
        if len(self._messages) >= _MAX_MESSAGES:
            self._has_room.clear()

    def close(self, died: KernelDied) -> None:
        """Record the kernel's death. Only the first call has an effect."""
        self.kernel_died = self.kernel_died or died
        self._has_room.set()
        self._has_item.set()

    async def next_item(self) -> InboxItem:
        """Wait for the next item, remove it and return it. `KernelDied` is never removed."""
        while True:
            if self._stop_reason is not None:
                reason, self._stop_reason = self._stop_reason, None
                return reason
            if self._messages:
                message = self._messages.popleft()
                self._has_room.set()
                return message
            if self.kernel_died is not None:
                return self.kernel_died
            self._has_item.clear()
            await self._has_item.wait()

    async def next_item_within(self, seconds: float) -> InboxItem | None:
        """Return the next item, or None if there is none within `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await self.next_item()
        return None

    @contextlib.contextmanager
    def stop_requests(self, seconds: float | None, token: Token | None) -> Generator[None]:
        """Within the context, add a stop reason after `seconds` and when `token` is cancelled.

        None means no time limit.
        """
        loop = asyncio.get_running_loop()
        timer = None if seconds is None else loop.call_later(seconds, self._request_stop, "timeout")
        try:
            with on_cancel(token, loop, lambda: self._request_stop("cancelled")):
                yield
        finally:
            if timer is not None:
                timer.cancel()
            self._stop_reason = None

    def _request_stop(self, reason: StopReason) -> None:
        self._stop_reason = reason
        self._has_item.set()
