"""TransformMessages: change what an agent sees of a chat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..agent import ChatMessage
from ..printing import print_notice
from .agent_capability import AgentCapability
from .message_transform import MessageTransform

if TYPE_CHECKING:
    from ..conversable_agent import ConversableAgent


class TransformMessages(AgentCapability):
    """Apply `transforms`, one after the other, to the messages from which an agent replies.

        limited = TransformMessages(transforms=[MessageHistoryLimiter(max_messages=10)])
        limited.add_to_agent(assistant)

    The stored messages and a system message at the start are not changed.

    verbose   print what the transforms changed
    """

    def __init__(
        self, *, transforms: Sequence[MessageTransform] = (), verbose: bool = True
    ) -> None:
        self._transforms = list(transforms)
        self._verbose = verbose

    def add_to_agent(self, agent: ConversableAgent) -> None:
        """Apply the transforms before each reply of `agent`, in asynchronous chats as well."""
        agent.register_hook("process_all_messages_before_reply", self._transform_messages)
        agent.register_hook("a_process_all_messages_before_reply", self._a_transform_messages)

    def _transform_messages(self, messages: list[ChatMessage]) -> list[ChatMessage]:
        has_system_message = bool(messages) and messages[0].get("role") == "system"
        head = messages[:1] if has_system_message else []
        rest = messages[len(head) :]
        for transform in self._transforms:
            rest = self._transformed(transform, rest)
        return head + rest

    async def _a_transform_messages(self, messages: list[ChatMessage]) -> list[ChatMessage]:
        return self._transform_messages(messages)

    def _transformed(
        self, transform: MessageTransform, messages: list[ChatMessage]
    ) -> list[ChatMessage]:
        changed = transform.apply_transform(messages)
        if self._verbose:
            text, has_effect = transform.get_logs(messages, changed)
            if has_effect:
                print_notice(text, "yellow")
        return changed
