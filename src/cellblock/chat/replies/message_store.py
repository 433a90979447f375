"""The messages of an agent, by the other agent of the conversation."""

from __future__ import annotations

from ..agent import Agent, ChatMessage
from ..agent_state import AgentState

STORED_KEYS = (
    "content",
    "function_call",
    "tool_calls",
    "tool_responses",
    "tool_call_id",
    "name",
    "context",
)


class MessageStore(AgentState):
    """Stores messages with the roles that a chat model expects, and returns them."""

    @property
    def chat_messages(self) -> dict[Agent, list[ChatMessage]]:
        """The messages by the other agent."""
        return self._oai_messages

    def chat_messages_for_summary(self, agent: Agent) -> list[ChatMessage]:
        """Return the messages with `agent` that a summary is made from."""
        return self._oai_messages[agent]

    def last_message(self, agent: Agent | None = None) -> ChatMessage | None:
        """Return the last message with `agent`; None if there is none at all.

        Raise `ValueError` if `agent` is None and there are several conversations, and `KeyError`
        if there is none with `agent`.
        """
        if agent is None:
            return self._last_message_of_only_conversation()
        if agent not in self._oai_messages:
            raise KeyError(
                f"The agent '{agent.name}' is not present in any conversation. "
                "No history available for this agent."
            )
        messages = self._oai_messages[agent]
        return messages[-1] if messages else None

    def _last_message_of_only_conversation(self) -> ChatMessage | None:
        if len(self._oai_messages) > 1:
            raise ValueError(
                "More than one conversation is found. "
                "Please specify the sender to get the last message."
            )
        for messages in self._oai_messages.values():
            return messages[-1] if messages else None
        return None

    @staticmethod
    def _message_to_dict(message: ChatMessage | str) -> ChatMessage:
        if isinstance(message, str):
            return {"content": message}
        try:  # a dict, another mapping, or pairs of keys and values
            return dict(message)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"A message must be a text or a dict, not {type(message).__name__}."
            ) from error

    def _append_oai_message(
        self,
        message: ChatMessage | str,
        role: str,
        conversation_id: Agent,
        is_sending: bool,
    ) -> bool:
        """Store `message`; return False if a chat model would not accept it.

        `role` is `assistant` for what this agent sends and `user` for what it receives. Calls are
        always the assistant's, results of calls keep their role, and another message can have an
        `override_role`.
        """
        message = self._message_to_dict(message)
        speaker = self.name if is_sending else conversation_id.name
        stored = stored_message(message, role, speaker)
        if stored is None:
            return False
        self._oai_messages[conversation_id].append(stored)
        return True


def stored_message(message: ChatMessage, role: str, speaker: str) -> ChatMessage | None:
    """Return `message` as it is stored: with its role and the speaker's name. None if invalid."""
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
