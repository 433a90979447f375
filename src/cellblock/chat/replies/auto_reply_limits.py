"""How many automatic replies in a row an agent sends before it asks a person or stops."""

from __future__ import annotations

from collections import defaultdict

from ..agent import Agent
from ..agent_state import AgentState


class AutoReplyLimits(AgentState):
    """Counts the automatic replies, for each sender."""

    def _set_up_auto_replies(self, limit: int | None) -> None:
        self._max_consecutive_auto_reply = (
            self.MAX_CONSECUTIVE_AUTO_REPLY if limit is None else limit
        )
        self._consecutive_auto_reply_counter = defaultdict(int)
        self._max_consecutive_auto_reply_dict = defaultdict(self.max_consecutive_auto_reply)

    def max_consecutive_auto_reply(self, sender: Agent | None = None) -> int:
        """Return how many automatic replies in a row the agent sends to `sender`."""
        if sender is None:
            return self._max_consecutive_auto_reply
        return self._max_consecutive_auto_reply_dict[sender]

    def update_max_consecutive_auto_reply(self, value: int, sender: Agent | None = None) -> None:
        """Send up to `value` automatic replies in a row to `sender`; None: to each."""
        if sender is not None:
            self._max_consecutive_auto_reply_dict[sender] = value
            return
        self._max_consecutive_auto_reply = value
        for each in self._max_consecutive_auto_reply_dict:
            self._max_consecutive_auto_reply_dict[each] = value

    def reset_consecutive_auto_reply_counter(self, sender: Agent | None = None) -> None:
        """Count the automatic replies to `sender` from 0; None: to all."""
        if sender is None:
            self._consecutive_auto_reply_counter.clear()
        else:
            self._consecutive_auto_reply_counter[sender] = 0
