"""ResumedChats: go on with a group chat whose messages were saved."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from ..agent import Agent, ChatMessage
from ..agent_state import AgentState
from ..io import IOStream
from ..steps import Step, Steps, run, run_async

if TYPE_CHECKING:
    from ..conversable_agent import ConversableAgent
    from ..conversations.chats import Chats
    from .group_chat import GroupChat

logger = logging.getLogger(__name__)

RemoveTermination = str | Callable[[str], str] | None
"""Text to remove from the last message, or a function that returns its new text."""


class ResumedChats(AgentState):
    """The part of a group chat manager that resumes a group chat."""

    if TYPE_CHECKING:

        @property
        def groupchat(self) -> GroupChat: ...
        def _prepare_chat(
            self,
            recipient: Chats,
            clear_history: bool,
            prepare_recipient: bool = True,
            reply_at_receive: bool = True,
        ) -> None: ...
        def _ends_conversation(self, message: ChatMessage) -> bool: ...

    def resume(
        self,
        messages: list[ChatMessage] | str,
        remove_termination_string: RemoveTermination = None,
        silent: bool | None = False,
    ) -> tuple[ConversableAgent, ChatMessage]:
        """Load `messages`, and return the last speaker and its message to go on with.

        `speaker.initiate_chat(manager, message=message, clear_history=False)` goes on. `messages`
        are `groupchat.messages` of an earlier chat, or their JSON text. `remove_termination_string`
        is text to remove from the last message, or a function that returns its new text.

        Raise ValueError if there is no message, the text is not JSON, or a message is by an agent
        that is not in the group chat.
        """
        return run(self._resume_steps(messages, remove_termination_string, silent))

    async def a_resume(
        self,
        messages: list[ChatMessage] | str,
        remove_termination_string: RemoveTermination = None,
        silent: bool | None = False,
    ) -> tuple[ConversableAgent, ChatMessage]:
        """Do what `resume` does."""
        return await run_async(self._resume_steps(messages, remove_termination_string, silent))

    def messages_from_string(self, message_string: str) -> list[ChatMessage]:
        """Return the messages in a JSON text. Raise ValueError if it is not JSON."""
        try:
            return json.loads(message_string)
        except json.JSONDecodeError as error:
            raise ValueError(f"Messages string is not a valid JSON string: {error}") from error

    def messages_to_string(self, messages: list[ChatMessage]) -> str:
        """Return `messages` as JSON text, for `resume`."""
        return json.dumps(messages)

    def _resume_steps(
        self,
        messages: list[ChatMessage] | str,
        remove_termination_string: RemoveTermination,
        silent: bool | None,
    ) -> Steps[tuple[ConversableAgent, ChatMessage]]:
        loaded = self.messages_from_string(messages) if isinstance(messages, str) else messages
        history = [dict(message) for message in _checked_messages(loaded)]
        self._valid_resume_messages(history)
        self._process_resume_termination(remove_termination_string, history)
        for agent in self.groupchat.agents:
            self._prepare_chat(cast("ConversableAgent", agent), True)
        speaker: Agent = cast(Agent, self)
        for message in history:
            speaker = self._speaker_of(message)
            message.setdefault("name", speaker.name)
        for message in history[:-1]:
            for agent in self.groupchat.agents:
                yield from Step(self.send, self.a_send)(
                    message, agent, request_reply=False, silent=True
                )
        self.groupchat.messages.extend(history[:-1])
        if not silent:
            IOStream.get_default().print(
                f"Prepared group chat with {len(history)} messages, "
                f"the last speaker is {speaker.name}"
            )
        return cast("ConversableAgent", speaker), history[-1]

    def _speaker_of(self, message: ChatMessage) -> Agent:
        """Return the agent that sent `message`; the manager for one without an agent's name."""
        found = self.groupchat.agent_by_name(message.get("name", ""), raise_on_name_conflict=True)
        return found or cast(Agent, self)

    def _valid_resume_messages(self, messages: list[ChatMessage]) -> None:
        if not messages:
            raise ValueError(
                "Cannot resume group chat as no messages were provided. Use "
                "GroupChatManager.run_chat or ConversableAgent.initiate_chat to start a new chat."
            )
        known = {self.name, *self.groupchat.agent_names}
        for message in messages:
            name = message.get("name")
            if name and name not in known and message.get("role") != "function":
                raise ValueError(
                    f"Agent name in message doesn't exist as agent in group chat: {name}"
                )

    def _process_resume_termination(
        self, remove_termination_string: RemoveTermination, messages: list[ChatMessage]
    ) -> None:
        last = messages[-1]
        if remove_termination_string and last.get("content"):
            if isinstance(remove_termination_string, str):
                last["content"] = last["content"].replace(remove_termination_string, "")
            else:
                last["content"] = remove_termination_string(last["content"])
        if self._ends_conversation(last):
            logger.warning(
                "WARNING: Last message meets termination criteria and this may terminate the chat."
            )


def _checked_messages(messages: Any) -> list[ChatMessage]:
    if not isinstance(messages, list) or not all(
        isinstance(message, dict) for message in cast(list[Any], messages)
    ):
        raise ValueError("Messages is not of type str or List[Dict]")
    return cast(list[ChatMessage], messages)
