"""The messages of an agent, by the other agent of the conversation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from ..agent import Agent, ChatMessage
from ..printing import print_notice

STORED_KEYS = (
    "content",
    "function_call",
    "tool_calls",
    "tool_responses",
    "tool_call_id",
    "name",
    "context",
)
_IGNORED = (
    "WARNING: `nr_preserved_messages` is ignored when clearing chat history with a specific agent."
)


class MessageStore:
    """Stores messages with the roles that a chat model expects."""

    def __init__(self, messages: Mapping[Agent, list[ChatMessage]] | None) -> None:
        self.by_agent: defaultdict[Agent, list[ChatMessage]] = defaultdict(list, messages or {})

    def given_or_stored(
        self, messages: list[ChatMessage] | None, sender: Agent | None
    ) -> list[ChatMessage]:
        """Return `messages`; those with `sender` if they are None."""
        if messages is not None:
            return messages
        return self.by_agent[sender] if sender is not None else []

    def last(self, agent: Agent | None) -> ChatMessage | None:
        """Return the last message with `agent`; see `ConversableAgent.last_message`."""
        if agent is None:
            return self._last_of_only_conversation()
        if agent not in self.by_agent:
            raise KeyError(
                f"The agent '{agent.name}' is not present in any conversation. "
                "No history available for this agent."
            )
        messages = self.by_agent[agent]
        return messages[-1] if messages else None

    def _last_of_only_conversation(self) -> ChatMessage | None:
        if len(self.by_agent) > 1:
            raise ValueError(
                "More than one conversation is found. "
                "Please specify the sender to get the last message."
            )
        for messages in self.by_agent.values():
            return messages[-1] if messages else None
        return None

    def append(self, message: ChatMessage, role: str, other: Agent, speaker: str) -> bool:
        """Store a message of `speaker`; return False if a chat model would not accept it."""
        stored = stored_message(message, role, speaker)
        if stored is None:
            return False
        self.by_agent[other].append(stored)
        return True

    def clear(self, recipient: Agent | None, count: int | None, name: str) -> None:
        """Forget the messages of the agent `name`; see `ConversableAgent.clear_history`."""
        if count is not None and count < 0:
            raise ValueError(f"nr_messages_to_preserve is {count}. Pass 0 or more.")
        if recipient is not None:
            if count:
                print_notice(_IGNORED, "yellow")
            self.by_agent[recipient].clear()
        elif count:
            for messages in self.by_agent.values():
                _preserve(messages, count, name)
        else:
            self.by_agent.clear()


def message_dict(message: ChatMessage | str) -> ChatMessage:
    """Return `message` as a dict. Raise `TypeError` if it is neither text nor a mapping."""
    if isinstance(message, str):
        return {"content": message}
    try:  # a dict, another mapping, or pairs of keys and values
        return dict(message)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"A message must be a text or a dict, not {type(message).__name__}."
        ) from error


def stored_message(message: ChatMessage, role: str, speaker: str) -> ChatMessage | None:
    """Return `message` as it is stored: with its role and the speaker's name. None if invalid.

    Calls are always the assistant's, results of calls keep their role, and another message can
    have an `override_role`.
    """
    stored = {key: message[key] for key in STORED_KEYS if message.get(key) is not None}
    if "content" not in stored:
        if "function_call" not in stored and "tool_calls" not in stored:
            return None
        stored["content"] = None
    is_call = bool(stored.get("function_call") or stored.get("tool_calls"))
    if is_call:
        return {**stored, "role": "assistant"}
    if message.get("role") in ("function", "tool"):
        role = message["role"]
    elif "override_role" in message:
        role = message["override_role"]
    return {**stored, "role": role, "name": stored.get("name", speaker)}


def preserved_count(messages: Sequence[ChatMessage], count: int) -> int:
    """Return how many messages stay so that no result at the start is without its call."""
    kept = min(count, len(messages))
    while 0 < kept < len(messages) and _is_response(messages[-kept]):
        kept += 1
    return kept


def _preserve(messages: list[ChatMessage], count: int, name: str) -> None:
    kept = preserved_count(messages, count)
    for _ in range(kept - min(count, len(messages))):
        print_notice(
            f"Preserving one more message for {name} to not divide history between "
            "tool call and tool response.",
            "yellow",
        )
    del messages[: len(messages) - kept]


def _is_response(message: ChatMessage) -> bool:
    return "tool_responses" in message or message.get("role") in ("tool", "function")
