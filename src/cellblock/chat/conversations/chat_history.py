"""Clear the messages of an agent, all of them or all but the last ones."""

from __future__ import annotations

from collections.abc import Sequence

from ..agent import Agent, ChatMessage
from ..agent_state import AgentState
from ..printing import print_notice


class ChatHistory(AgentState):
    """The part of an agent that clears its messages."""

    def clear_history(
        self, recipient: Agent | None = None, nr_messages_to_preserve: int | None = None
    ) -> None:
        """Forget the messages with `recipient`, or with all agents if it is None.

        The last `nr_messages_to_preserve` of each conversation stay, and the tool call that their
        first message answers. It is ignored with a `recipient`.
        """
        if nr_messages_to_preserve is not None and nr_messages_to_preserve < 0:
            raise ValueError(
                f"nr_messages_to_preserve is {nr_messages_to_preserve}. Pass 0 or more."
            )
        if recipient is not None:
            if nr_messages_to_preserve:
                print_notice(_IGNORED, "yellow")
            self._oai_messages[recipient].clear()
        elif nr_messages_to_preserve:
            for messages in self._oai_messages.values():
                self._preserve(messages, nr_messages_to_preserve)
        else:
            self._oai_messages.clear()

    def _preserve(self, messages: list[ChatMessage], count: int) -> None:
        kept = preserved_count(messages, count)
        for _ in range(kept - min(count, len(messages))):
            print_notice(
                f"Preserving one more message for {self.name} to not divide history between "
                "tool call and tool response.",
                "yellow",
            )
        del messages[: len(messages) - kept]


_IGNORED = (
    "WARNING: `nr_preserved_messages` is ignored when clearing chat history with a specific agent."
)


def preserved_count(messages: Sequence[ChatMessage], count: int) -> int:
    """Return how many messages stay so that no result at the start is without its call."""
    kept = min(count, len(messages))
    while 0 < kept < len(messages) and _is_response(messages[-kept]):
        kept += 1
    return kept


def _is_response(message: ChatMessage) -> bool:
    return "tool_responses" in message or message.get("role") in ("tool", "function")
