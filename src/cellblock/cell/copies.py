"""The frozen copies of a live session, as the server sees them: made, kept frozen, woken up for an order, dropped."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from . import wire
from .channel import Channel, Watcher

_HELLO = 30.0  # seconds that a copy may take to say hello; far more than a loaded machine needs


class Keeper:
    """A frozen copy of a session's process, as it was after so many blocks. `on_news`: it has said hello, or ended."""

    def __init__(self, loop: Watcher, blocks: int, on_news: Callable[[], None]) -> None:
        self.blocks = blocks
        self.made = time.monotonic()
        self.ready = False
        self._on_news = on_news
        self.channel = Channel(loop, self._on_frame, on_news)

    @property
    def alive(self) -> bool:
        """Whether it can still be gone back to."""
        return self.channel.open

    @property
    def settled(self) -> bool:
        """Whether it is known what has become of it. One that never says anything is ended."""
        if not self.ready and self.alive and time.monotonic() > self.made + _HELLO:
            self.drop()
        return self.ready or not self.alive

    def _on_frame(self, _frame: wire.Frame) -> None:
        first, self.ready = not self.ready, True
        self.freeze()
        if first:
            self._on_news()

    def freeze(self) -> None:
        """Stop it in earnest, whatever code has made of it."""
        self.channel.signal(signal.SIGSTOP)

    def resume(self, loop: Watcher, session: Channel) -> Keeper:
        """Have the session go on from it, on `session`; give the keeper of the same state that there is from now on."""
        heir = Keeper(loop, self.blocks, self._on_news)
        self.order("resume", session, [session.hand_over(), heir.channel.hand_over()])
        heir.channel.sent()
        self.channel.close()
        return heir

    def order(self, op: str, channel: Channel, descriptors: list[int]) -> None:
        """Wake it up for one order, which brings forth a process on `channel`."""
        self.channel.signal(signal.SIGCONT)
        self.channel.send(wire.encode_json(wire.ASK, 0, {"op": op}), descriptors)
        channel.sent()

    def drop(self) -> None:
        """End it."""
        self.channel.kill()
        self.channel.close()
