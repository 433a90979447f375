"""The pools of one server that have something to do: they share its processors, and each is to have its part of them."""

from __future__ import annotations

import os
import time
from typing import Protocol

PROCESSORS = os.cpu_count() or 1
STUCK = 0.02  # seconds without the end of any block, after which those who wait get more cells than processors are good for


class Member(Protocol):
    """What this needs of a pool."""

    def at_work(self) -> int:
        """Give how many of its cells run a block, or are being made ready."""
        ...

    def young(self, since: float) -> int:
        """Give how many of these have begun after `since`, of `time.monotonic`, or have yet to begin."""
        ...


class Crowd:
    """All of them. Where `useful` is asked for: how many cells the processors are good for."""

    def __init__(self) -> None:
        self._members = set[Member]()

    def join(self, member: Member) -> None:
        """It has something to do."""
        self._members.add(member)

    def leave(self, member: Member) -> None:
        """It has nothing to do any more."""
        self._members.discard(member)

    def is_idle(self) -> bool:
        """Tell whether no cell of any of them is at work."""
        return not any(member.at_work() for member in self._members)

    def is_enough(self, useful: int) -> bool:
        """Tell whether as many cells are at work as are useful."""
        self._members = {member for member in self._members if member.at_work()}
        return sum(member.at_work() for member in self._members) >= useful

    def has_its_share(self, member: Member, useful: int) -> bool:
        """Tell whether blocks of others are to have the processors before another one of `member`, who may have one."""
        if len(self._members) < 2 or not member.at_work():
            return False
        now = time.monotonic()
        if member.young(now - STUCK) >= self._share(useful):
            return True  # however long a turn is, which all of them would have to be asked for
        self._members = {member for member in self._members if member.at_work()}
        if len(self._members) < 2:
            return False
        return member.young(now - self.turn(useful)) >= self._share(useful)

    def _share(self, useful: int) -> int:
        return max(1, useful // len(self._members))

    def turn(self, useful: int) -> float:
        """Give the seconds in which each may begin its share of blocks: few where most of all blocks only sleep."""
        since = time.monotonic() - STUCK
        # Where all compute, about so many are in the first moment of a block, or on their way to it.
        is_quiet = sum(member.young(since) for member in self._members) < 2 * useful
        return STUCK if is_quiet else STUCK * len(self._members)


def processors_are_free() -> bool:
    """Tell whether there is a processor for each who wants to run just now, also for other servers' blocks; see proc(5)."""
    with open("/proc/loadavg") as file:
        running = int(file.read().split()[3].partition("/")[0])
    return running <= PROCESSORS
