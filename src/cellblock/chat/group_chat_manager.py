"""GroupChatManager: runs a group chat."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

from .agent import Agent, ChatMessage
from .agent_state import HumanInputMode, Reply
from .chat_history import preserved_count
from .clear_history_command import has_clear_history_command, read_clear_history_command
from .conversable_agent import ConversableAgent
from .errors import NoEligibleSpeaker
from .group_chat import GroupChat, logger
from .io import IOStream
from .printing import print_notice
from .resumed_chats import ResumedChats
from .steps import Step, Steps, run, run_async


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

    @property
    def groupchat(self) -> GroupChat:
        """The group chat."""
        return self._groupchat

    @property
    def last_speaker(self) -> Agent | None:
        """Who spoke last. An agent of the group chat sees the manager as the sender."""
        return self._last_speaker

    def chat_messages_for_summary(self, agent: Agent) -> list[ChatMessage]:
        """Return what was said in the group chat, whoever `agent` is."""
        return self._groupchat.messages

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
        for agent in self._conversable_members():
            if agent is not recipient or prepare_recipient:
                agent._prepare_chat(self, clear_history, False, reply_at_receive)

    def _conversable_members(self) -> list[ConversableAgent]:
        members = cast(list[object], self._groupchat.agents)
        return [agent for agent in members if isinstance(agent, ConversableAgent)]

    def _raise_exception_on_async_reply_functions(self) -> None:
        super()._raise_exception_on_async_reply_functions()
        for agent in self._conversable_members():
            agent._raise_exception_on_async_reply_functions()

    def run_chat(
        self,
        messages: list[ChatMessage] | None = None,
        sender: Agent | None = None,
        config: GroupChat | None = None,
    ) -> Reply:
        """Run the group chat `config` from the last message until it is over. The reply is None.

        It is over after `max_round` messages, after a termination message, when an agent has no
        reply, and when nobody may speak.
        """
        return run(self._group_chat_steps(messages, sender, config, announce=not self._silent))

    async def a_run_chat(
        self,
        messages: list[ChatMessage] | None = None,
        sender: Agent | None = None,
        config: GroupChat | None = None,
    ) -> Reply:
        """Do what `run_chat` does."""
        return await run_async(self._group_chat_steps(messages, sender, config, announce=False))

    def _group_chat_steps(
        self,
        messages: list[ChatMessage] | None,
        sender: Agent | None,
        groupchat: GroupChat | None,
        *,
        announce: bool,
    ) -> Steps[Reply]:
        groupchat = self._groupchat if groupchat is None else groupchat
        if sender is None:
            raise ValueError(f"Group chat '{self.name}' needs the sender of the first message.")
        messages = self._oai_messages[sender] if messages is None else messages
        if not messages:
            raise ValueError(f"Group chat '{self.name}' needs a first message.")
        message = messages[-1]  # introductions are appended to the same list
        if groupchat.send_introductions:
            yield from self._broadcast_steps(groupchat.introductions_msg(), groupchat.agents)
        with self._cache_for(groupchat):
            yield from self._round_steps(groupchat, sender, message, announce)
        return True, None

    def _round_steps(
        self, groupchat: GroupChat, speaker: Agent, message: ChatMessage, announce: bool
    ) -> Steps[None]:
        for round_number in range(1, groupchat.max_round + 1):
            self._last_speaker = speaker
            groupchat.append(message, speaker)
            others = [agent for agent in groupchat.agents if agent != speaker]
            yield from self._broadcast_steps(message, others)
            if self._ends_conversation(message) or round_number == groupchat.max_round:
                return
            answer = yield from self._turn_in_group_steps(speaker, groupchat, announce)
            if answer is None:
                return
            speaker, reply = answer
            self._obey_clear_history(reply, groupchat)
            yield from Step(speaker.send, speaker.a_send)(
                reply, self, request_reply=False, silent=self._silent
            )
            message = cast(ChatMessage, self.last_message(speaker))

    def _broadcast_steps(self, message: ChatMessage | str, agents: list[Agent]) -> Steps[None]:
        for agent in agents:
            yield from Step(self.send, self.a_send)(
                message, agent, request_reply=False, silent=True
            )

    def _turn_in_group_steps(
        self, last_speaker: Agent, groupchat: GroupChat, announce: bool
    ) -> Steps[tuple[Agent, ChatMessage | str] | None]:
        """Return who speaks and what it says, None for the end of the chat."""
        select = Step(groupchat.select_speaker, groupchat.a_select_speaker)
        try:
            speaker = yield from select(last_speaker, self)
            if announce:
                print_notice(f"\nNext speaker: {speaker.name}\n", "green")
            reply = yield from Step(speaker.generate_reply, speaker.a_generate_reply)(sender=self)
        except KeyboardInterrupt:
            speaker = groupchat.agent_by_name(groupchat.admin_name)
            if speaker is None:
                raise
            reply = yield from Step(speaker.generate_reply, speaker.a_generate_reply)(sender=self)
        except NoEligibleSpeaker:
            logger.warning("No eligible speaker found. Terminating the conversation.")
            return None
        return None if reply is None else (speaker, reply)

    @contextmanager
    def _cache_for(self, groupchat: GroupChat) -> Generator[None]:
        """Let the agents use the cache of this chat, and their own again afterwards."""
        if self.client_cache is None:
            yield
            return
        members = self._conversable_members()
        previous = [agent.client_cache for agent in members]
        for agent in members:
            agent.client_cache = self.client_cache
        try:
            yield
        finally:
            for agent, cache in zip(members, previous, strict=True):
                agent.client_cache = cache

    def _obey_clear_history(self, reply: ChatMessage | str, groupchat: GroupChat) -> None:
        """Obey the command in a message by a person: those are dictionaries, a model's are text."""
        if groupchat.enable_clear_history and not isinstance(reply, str):
            if has_clear_history_command(reply.get("content")):
                reply["content"] = self.clear_agents_history(reply, groupchat)

    def clear_agents_history(self, reply: ChatMessage, groupchat: GroupChat) -> str:
        """Clear histories as the text of `reply` says, and return the text without the command.

        `CLEAR HISTORY` clears those of all agents and of the group chat, `CLEAR HISTORY name` that
        of one agent, `CLEAR HISTORY 3` all but the last three messages, `CLEAR HISTORY name 3`
        both.
        """
        command = read_clear_history_command(reply["content"], groupchat.agent_names)
        keep = command.keep
        if reply.get("tool_responses") and not keep:
            keep = 1
            logger.warning(
                "The last tool call message will be saved to prevent errors caused by tool "
                "response without tool call."
            )
        whose = command.agent or "all agents"
        IOStream.get_default().print(
            f"Clearing history for {whose}{f' except last {keep} messages' * bool(keep)}."
        )
        for agent in self._conversable_members():
            if command.agent in (None, agent.name):
                agent.clear_history(nr_messages_to_preserve=keep or None)
        if command.agent is None:
            messages = groupchat.messages
            del messages[: len(messages) - preserved_count(messages, keep)]
        return command.rest
