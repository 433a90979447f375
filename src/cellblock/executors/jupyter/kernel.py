"""LiveKernel: one Jupyter kernel that lives, whatever the way to it, and the inbox of what comes from there."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...cancellation import Token, heeding
from ...events import Outcome

_UNREAD = 512  # messages that wait for their reader, at which the sender has to wait
EXIT_DEAD = 137

Message = Mapping[str, Any]
Alarm = Literal["timeout", "cancelled"]


@dataclass(frozen=True)
class Death:
    """The kernel is gone, or cannot be reached any more. `message` is what is known of the reason."""

    exit_code: int = EXIT_DEAD
    outcome: Outcome = "killed"
    limit: str | None = None
    message: str = "\nKilled: the kernel died."


@dataclass(frozen=True)
class Lost:
    """The answer to `request` is lost, and will not come: whether and how the code ran cannot be known."""

    request: str
    message: str = (
        "\nLost: the connection to the kernel dropped, and with it the news of how the block ended."
    )


News = Message | Lost


class Inbox:
    """What a kernel sent and nobody has read yet; an alarm is read first, the kernel's death last. For one reader."""

    def __init__(self) -> None:
        self.death: Death | None = None
        self._messages: deque[News] = deque()
        self._alarm: Alarm | None = None
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    async def put(self, message: News) -> None:
        """Add a message, when there is room."""
        await self._room.wait()
        self._messages.append(message)
        self._news.set()
        if len(self._messages) >= _UNREAD:
            self._room.clear()

    def close(self, death: Death) -> None:
        """Say that nothing more will come. Only the first reason counts."""
        self.death = self.death or death
        self._room.set()
        self._news.set()

    async def take(self) -> News | Alarm | Death:
        """Give the next of what there is."""
        while True:
            if self._alarm is not None:
                alarm, self._alarm = self._alarm, None
                return alarm
            if self._messages:
                message = self._messages.popleft()
                self._room.set()
                return message
            if self.death is not None:
                return self.death
            self._news.clear()
            await self._news.wait()

    async def take_within(self, seconds: float) -> News | Alarm | Death | None:
        """Give the next of what there is; None when nothing comes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await self.take()
        return None

    @contextlib.contextmanager
    def alarms(self, seconds: float, token: Token | None) -> Generator[None]:
        """Raise an alarm after `seconds`, and when `token` is cancelled."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(seconds, self._raise, "timeout")
        try:
            with heeding(token, loop, lambda: self._raise("cancelled")):
                yield
        finally:
            timer.cancel()
            self._alarm = None

    def _raise(self, alarm: Alarm) -> None:
        self._alarm = alarm
        self._news.set()


class Server:
    """What is known of a kernel's server besides what it says itself: nothing, unless it is one of ours."""

    def runs(self) -> bool:
        """Tell whether it may still run."""
        return True

    async def why_dead(self) -> Death:
        """Give the reason for which a kernel has just died."""
        return Death()


class LiveKernel(ABC):
    """One kernel, started. It is never started again: another one takes its place.

    inbox      what it sends, of every channel
    session    under which it knows us
    language   that it runs, as it calls it itself
    drops      how often the connection dropped and was made again
    """

    def __init__(self, session: str, language: str) -> None:
        self.inbox = Inbox()
        self.session, self.language = session, language
        self.drops = 0

    @abstractmethod
    async def execute(self, code: str, *, silent: bool = False) -> str:
        """Ask it to run `code`, and give the id of the request. Does not wait, and raises nothing when it is dead."""

    @abstractmethod
    async def interrupt(self) -> None:
        """Have it stop what it runs, if it listens."""

    @abstractmethod
    async def close(self) -> None:
        """End it, and wait until nothing of it is left. Does nothing the second time."""

    def cpu_seconds(self) -> float:
        """Give the CPU time that it and all that it started have used; 0 where that cannot be known."""
        return 0.0
