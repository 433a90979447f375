"""GroupChatManager: the agent that a group chat goes through, and that resumes a saved one."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from typing import Any, cast

from ..agent import Agent, ChatMessage, HumanInputMode, Reply
from ..conversable_agent import ConversableAgent
from ..io import IOStream
from ..steps import Step, Steps, asynchronous, run, run_async, synchronous
from .clear_history_command import clear_agents_history
from .group_chat import GroupChat
from .group_chat_run import GroupChatRun

logger = logging.getLogger(__name__)

RemoveTermination = str | Callable[[str], str] | None
"""Text to remove from the last message, or a function that returns its new text."""


class GroupChatManager(ConversableAgent):
    """The agent that a group chat goes through: it sends every message on and asks for the next.

    `agent.initiate_chat(manager, message=…)` starts the group chat. `silent` prints nothing.
    """

    def __init__(
        self,
        groupchat: GroupChat,
        name: str = "chat_manager",
        max_consecutive_auto_reply: int | None = sys.maxsize,
        human_input_mode: HumanInputMode = "NEVER",
        system_message: str | list[Any] | None = "Group chat manager.",
        silent: bool = False,
        **kwargs: Any,
    ) -> None:
        config = cast(dict[str, Any], kwargs.get("llm_config") or {})
        if config.get("functions") or config.get("tools"):
            raise ValueError(
                "GroupChatManager is not allowed to make function/tool calls. Please remove the "
                "'functions' or 'tools' config in 'llm_config' you passed in."
            )
        super().__init__(
            name=name,
            system_message=system_message,
            max_consecutive_auto_reply=max_consecutive_auto_reply,
            human_input_mode=human_input_mode,
            **kwargs,
        )
        self._groupchat = groupchat
        self._last_speaker: Agent | None = None
        self._silent = silent
        for function in (GroupChatManager.run_chat, GroupChatManager.a_run_chat):
            self.register_reply(
                Agent,
                function,
                config=groupchat,
                reset_config=GroupChat.reset,
                ignore_async_in_sync_chat=True,
            )
            self._reply_func_list[0]["config"] = groupchat  # instead of a copy

    @property
    def groupchat(self) -> GroupChat:
        """The group chat."""
        return self._groupchat

    @property
    def last_speaker(self) -> Agent | None:
        """Who spoke last. An agent of the group chat sees the manager as the sender."""
        return self._last_speaker

    def chat_messages_for_summary(self, agent: Agent) -> list[ChatMessage]:
        """Return what was said in the group chat, for any `agent`."""
        return self._groupchat.messages

    def run_chat(
        self,
        messages: list[ChatMessage] | None = None,
        sender: Agent | None = None,
        config: GroupChat | None = None,
    ) -> Reply:
        """Run the group chat `config` from the last message until it is over. The reply is None.

        It is over after `max_round` messages, after a termination message, when an agent has no
        reply, and when no agent may speak. Any agent can have this function as a reply function.
        """
        silent = getattr(self, "_silent", False)
        groupchat = self.groupchat if config is None else config
        return run(GroupChatRun(self, groupchat, announce=not silent).steps(messages, sender))

    async def a_run_chat(
        self,
        messages: list[ChatMessage] | None = None,
        sender: Agent | None = None,
        config: GroupChat | None = None,
    ) -> Reply:
        """Do what `run_chat` does, without printing who speaks next."""
        groupchat = self.groupchat if config is None else config
        return await run_async(GroupChatRun(self, groupchat, False).steps(messages, sender))

    def clear_agents_history(self, reply: ChatMessage, groupchat: GroupChat) -> str:
        """Clear histories as the text of `reply` says, and return the text without the command.

        `CLEAR HISTORY` clears those of all agents and of the group chat, `CLEAR HISTORY name` that
        of one agent, `CLEAR HISTORY 3` all but the last three messages, `CLEAR HISTORY name 3`
        both.
        """
        return clear_agents_history(reply, groupchat)

    @synchronous
    def resume(
        self,
        messages: list[ChatMessage] | str,
        remove_termination_string: RemoveTermination = None,
        silent: bool | None = False,
    ) -> Steps[tuple[ConversableAgent, ChatMessage]]:
        """Load `messages`, and return the last speaker and its message to continue with.

        `speaker.initiate_chat(manager, message=message, clear_history=False)` continues the chat.
        `messages` are `groupchat.messages` of an earlier chat, or their JSON text.
        `remove_termination_string` is text to remove from the last message, or a function that
        returns its new text.

        Raise ValueError if there is no message, the text is not JSON, or a message is by an agent
        that is not in the group chat.
        """
        loaded = self.messages_from_string(messages) if isinstance(messages, str) else messages
        history = [dict(message) for message in _checked_messages(loaded)]
        self._valid_resume_messages(history)
        self._process_resume_termination(remove_termination_string, history)
        for agent in self.groupchat.agents:
            self._prepare_chat(cast(ConversableAgent, agent), True)
        speaker: Agent = self
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
        return cast(ConversableAgent, speaker), history[-1]

    a_resume = asynchronous(resume)

    def messages_from_string(self, message_string: str) -> list[ChatMessage]:
        """Return the messages in a JSON text. Raise ValueError if it is not JSON."""
        try:
            return json.loads(message_string)
        except json.JSONDecodeError as error:
            raise ValueError(f"Messages string is not a valid JSON string: {error}") from error

    def messages_to_string(self, messages: list[ChatMessage]) -> str:
        """Return `messages` as JSON text, for `resume`."""
        return json.dumps(messages)

    def _speaker_of(self, message: ChatMessage) -> Agent:
        """Return the agent that sent `message`; the manager for one without an agent's name."""
        found = self.groupchat.agent_by_name(message.get("name", ""), raise_on_name_conflict=True)
        return found or self

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
        if self._parts.people.ends_conversation(self.name, last):
            logger.warning(
                "WARNING: Last message meets termination criteria and this may terminate the chat."
            )

    def _prepare_chat(
        self,
        recipient: ConversableAgent,
        clear_history: bool,
        prepare_recipient: bool = True,
        reply_at_receive: bool = True,
    ) -> None:
        super()._prepare_chat(recipient, clear_history, prepare_recipient, reply_at_receive)
        if clear_history:
            self._groupchat.reset()
        for agent in self._groupchat.conversable_agents():
            if agent is not recipient or prepare_recipient:
                agent._prepare_chat(self, clear_history, False, reply_at_receive)

    def _raise_exception_on_async_reply_functions(self) -> None:
        super()._raise_exception_on_async_reply_functions()
        for agent in self._groupchat.conversable_agents():
            agent._raise_exception_on_async_reply_functions()


def _checked_messages(messages: Any) -> list[ChatMessage]:
    if not isinstance(messages, list) or not all(
        isinstance(message, dict) for message in cast(list[Any], messages)
    ):
        raise ValueError("Messages is not of type str or List[Dict]")
    return cast(list[ChatMessage], messages)
