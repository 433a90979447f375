"""GroupChatManager: the agent that a group chat goes through."""

from __future__ import annotations

import sys
from typing import Any, cast

from ..agent import Agent, ChatMessage
from ..agent_state import HumanInputMode, Reply
from ..conversable_agent import ConversableAgent
from ..conversations.chats import Chats
from ..steps import run, run_async
from .clear_history_command import clear_agents_history
from .group_chat import GroupChat
from .group_chat_run import GroupChatRun
from .resumed_chats import ResumedChats


class GroupChatManager(ResumedChats, ConversableAgent):
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

    def _prepare_chat(
        self,
        recipient: Chats,
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
