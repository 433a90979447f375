"""The frozen copies of a live session, as the server sees them: made, kept frozen, woken up for an order, dropped."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

from ... import protocol
from ..interfaces import Watcher
from .channel import Channel

# Seconds in which one that has ended may still be found among its parent's children. To look whether it is a zombie would
# hold up each block's end; and by then its number cannot be another's, since all others come first.
_UNBURIED = 0.02


class Keeper:
    """A frozen copy of a session's process, as it was after so many blocks. `on_news`: it has ended."""

    def __init__(self, loop: Watcher, blocks: int, on_news: Callable[[], None]) -> None:
        self.blocks = blocks
        self._dropped = False
        self.unburied_until = 0.0
        self._on_news = on_news
        self.channel = Channel(loop, self._on_frame, on_news)

    @property
    def alive(self) -> bool:
        """Whether it can still be gone back to."""
        return self.channel.open and not self._dropped

    @property
    def settled(self) -> bool:
        """Whether it is known what has become of it."""
        return self.channel.pid != 0 or not self.alive

    def adopt(self, pid: int) -> None:
        """Know that it is process `pid`, as who made it says; 0: it is none."""
        if pid == 0:
            self.drop()
            return
        self.channel.meet(pid)

    def _on_frame(self, _frame: protocol.Frame) -> None:
        """Its answer: that what it was to bring forth has come is told by that itself."""

    def resume(self, loop: Watcher, session: Channel) -> Keeper:
        """Have the session go on from it, on `session`; give the keeper of the same state that there is from now on."""
        heir = Keeper(loop, self.blocks, self._on_news)
        self.order({"op": "resume"}, [session.hand_over(), heir.channel.hand_over()])
        session.sent()
        heir.channel.sent()
        self.channel.close()
        return heir

    def order(self, order: dict[str, Any], descriptors: list[int]) -> None:
        """Give it one order, which brings forth a process."""
        self.channel.signal(signal.SIGCONT)  # code may have stopped it
        self.channel.send(protocol.encode_json(protocol.ASK, 0, order), descriptors)

    def drop(self) -> None:
        """End it. It is heard of until it is gone, which takes a moment, lest it be taken for a process of code's."""
        self._dropped = True
        self.unburied_until = time.monotonic() + _UNBURIED
        if self.channel.pid:
            self.channel.kill()
        else:  # it ends when it finds the stream closed
            self.channel.close()


class Copies:
    """All frozen copies of one session: the one from before the block that runs, and those that marks stand for.

    `on_news` is called when something has become of one. `obstacles` says why the last one could not be made.
    """

    def __init__(self, loop: Watcher, on_news: Callable[[], None]) -> None:
        self._loop, self._on_news = loop, on_news
        self._auto: Keeper | None = None
        self._next: Keeper | None = None  # the next `_auto`, on the way
        self._asked: Keeper | None = None  # the next mark, on the way
        self._going: list[Keeper] = []
        self._are_settled = True  # as far as is known
        self.marks: dict[str, Keeper] = {}
        self.obstacles: list[str] = []

    def all(self) -> list[Keeper]:
        """List them."""
        return [
            keeper
            for keeper in (self._auto, self._next, self._asked, *self.marks.values())
            if keeper is not None
        ]

    def pids(self) -> set[int]:
        """Give the processes of all of them, and of those that are about to be gone."""
        if (
            self._auto is None
            and not self._going
            and not self.marks
            and self._asked is self._next is None
        ):
            return set()
        now = time.monotonic()
        self._going = [
            keeper for keeper in self._going if keeper.channel.open or now < keeper.unburied_until
        ]
        return {keeper.channel.pid for keeper in (*self.all(), *self._going)}

    def _drop(self, keeper: Keeper) -> None:
        keeper.drop()
        self._going.append(keeper)

    @property
    def settled(self) -> bool:
        """Whether it is known of all that were begun what has become of them."""
        self._are_settled = self._are_settled or all([keeper.settled for keeper in self.all()])
        return self._are_settled

    def adopt(self, pid: int) -> None:
        """Know that the one that was begun first, of those of which nothing is known, is process `pid`; 0: it is none."""
        for keeper in self.all():
            if not keeper.settled:
                keeper.adopt(pid)
                return

    def lose_unborn(self) -> None:
        """Who was to make what has been begun will not do so, or not tell of it."""
        while not self.settled:
            self.adopt(0)
        self._next = None

    # of itself, before each block

    @property
    def auto(self) -> Keeper | None:
        """The copy to go back to when a block has ended the session's process."""
        return self._auto if self._auto is not None and self._auto.alive else None

    def begin_auto(self, main: Channel, blocks: int) -> None:
        """Have the session's process, behind `main`, make a copy of itself; `end_auto` gets its answer."""
        if self._next is not None:
            return
        self._next, self._are_settled = Keeper(self._loop, blocks, self._on_news), False
        main.send(
            protocol.encode_json(protocol.ASK, 0, {"op": "keep", "exact": False}),
            [self._next.channel.hand_over()],
        )
        self._next.channel.sent()

    def end_auto(self, answer: dict[str, Any]) -> None:
        """The process has made it, or refused to."""
        keeper, self._next = self._next, None
        self.obstacles = answer.get("refused", [])
        if keeper is None:
            return
        if "refused" in answer or "error" in answer:
            self._drop(keeper)
            return
        if self._auto is not None:
            self._drop(self._auto)
        self._auto = keeper

    def resume_auto(self, session: Channel) -> int:
        """Have the session go on from the last copy, on `session`; give how many blocks that has seen."""
        assert self._auto is not None
        self._auto, self._are_settled = self._auto.resume(self._loop, session), False
        return self._auto.blocks

    def drop_autos(self) -> None:
        """End those that were made of themselves."""
        for keeper in (self._auto, self._next):
            if keeper is not None:
                self._drop(keeper)
        self._auto = self._next = None

    # asked for

    def begin_mark(self, blocks: int) -> Keeper:
        """Give the keeper of a copy that is about to be asked for; `end_mark` is told what came of it."""
        self._asked, self._are_settled = Keeper(self._loop, blocks, self._on_news), False
        return self._asked

    def end_mark(self, mark: str, answer: dict[str, Any]) -> None:
        """Keep it under the name `mark`, or drop it when it was not made."""
        keeper, self._asked = self._asked, None
        if keeper is None:
            return
        if "refused" in answer or "error" in answer or not keeper.alive:
            self._drop(keeper)
        else:
            self.marks[mark] = keeper

    def resume(self, mark: str, session: Channel) -> int:
        """Have the session go on from `mark`, on `session`; give how many blocks that has seen."""
        keeper = self.marks[mark] = self.marks[mark].resume(self._loop, session)
        self._are_settled = False
        return keeper.blocks

    def drop(self, mark: str) -> None:
        """End the copy that `mark` stands for."""
        if (keeper := self.marks.pop(mark, None)) is not None:
            self._drop(keeper)

    def close(self) -> None:
        """End all of them."""
        for keeper in (*self.all(), *self._going):
            keeper.drop()
            keeper.channel.close()
        self._auto = self._next = self._asked = None
        self.marks.clear()
