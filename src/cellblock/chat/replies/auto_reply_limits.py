"""How many automatic replies in a row an agent sends before it asks a person or stops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import cast

from ..agent import Agent


class AutoReplyLimits:
    """Counts the automatic replies, for each sender.

    `default` returns the limit for a sender without one. Raise `TypeError` if `limit` is not a
    number.
    """

    def __init__(self, limit: int, default: Callable[[], int]) -> None:
        if not isinstance(cast(object, limit), int | float):
            raise TypeError(
                f"max_consecutive_auto_reply must be a number or None, not {limit!r:.100}."
            )
        self.limit = limit
        self.by_sender: defaultdict[Agent | None, int] = defaultdict(default)
        self.counts: defaultdict[Agent | None, int] = defaultdict(int)

    def update(self, limit: int, sender: Agent | None) -> None:
        """Set the limit for `sender`; None: for each."""
        if sender is not None:
            self.by_sender[sender] = limit
            return
        self.limit = limit
        for each in self.by_sender:
            self.by_sender[each] = limit

    def reset(self, sender: Agent | None) -> None:
        """Count the replies to `sender` from 0; None: to all."""
        if sender is None:
            self.counts.clear()
        else:
            self.counts[sender] = 0

    def is_reached(self, sender: Agent | None) -> bool:
        """Return True if the next reply to `sender` needs a person."""
        return self.counts[sender] >= self.by_sender[sender]
