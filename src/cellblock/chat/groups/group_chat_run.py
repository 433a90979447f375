"""GroupChatRun: a group chat from one message until it is over."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from ..agent import Agent, ChatMessage, Reply
from ..conversable_agent import ConversableAgent
from ..errors import NoEligibleSpeaker
from ..printing import print_notice
from ..steps import Step, Steps
from .clear_history_command import clear_agents_history, has_clear_history_command
from .group_chat import GroupChat

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class GroupChatRun:
    """One run of a group chat.

    `manager` is a `GroupChatManager`, or another agent that has `GroupChatManager.run_chat` as a
    reply function. `announce` prints who speaks next.
    """

    manager: ConversableAgent
    groupchat: GroupChat
    announce: bool

    def steps(self, messages: list[ChatMessage] | None, sender: Agent | None) -> Steps[Reply]:
        """Run the group chat from the last of `messages`, by default those with `sender`."""
        if sender is None:
            raise ValueError(
                f"Group chat '{self.manager.name}' needs the sender of the first message."
            )
        messages = self.manager.chat_messages[sender] if messages is None else messages
        if not messages:
            raise ValueError(f"Group chat '{self.manager.name}' needs a first message.")
        message = messages[-1]  # introductions are appended to the same list
        if self.groupchat.send_introductions:
            introductions = self.groupchat.introductions_msg()
            yield from self._broadcast_steps(introductions, self.groupchat.agents)
        with self._cache_of_the_manager():
            yield from self._round_steps(sender, message)
        return True, None

    def _round_steps(self, speaker: Agent, message: ChatMessage) -> Steps[None]:
        manager, groupchat = cast(Any, self.manager), self.groupchat
        for round_number in range(1, groupchat.max_round + 1):
            manager._last_speaker = speaker
            groupchat.append(message, speaker)
            others = [agent for agent in groupchat.agents if agent != speaker]
            yield from self._broadcast_steps(message, others)
            is_over = manager._parts.people.ends_conversation(manager.name, message)
            if is_over or round_number == groupchat.max_round:
                return
            answer = yield from self._answer_steps(speaker)
            if answer is None:
                return
            speaker, reply = answer
            self._obey_clear_history(reply)
            yield from Step(speaker.send, speaker.a_send)(
                reply, manager, request_reply=False, silent=getattr(manager, "_silent", False)
            )
            message = manager.last_message(speaker)

    def _broadcast_steps(self, message: ChatMessage | str, agents: list[Agent]) -> Steps[None]:
        for agent in agents:
            yield from Step(self.manager.send, self.manager.a_send)(
                message, agent, request_reply=False, silent=True
            )

    def _answer_steps(self, last_speaker: Agent) -> Steps[tuple[Agent, ChatMessage | str] | None]:
        """Return who speaks next and what it says, None for the end of the chat."""
        groupchat = self.groupchat
        try:
            select = Step(groupchat.select_speaker, groupchat.a_select_speaker)
            speaker: Agent = yield from select(last_speaker, self.manager)
            if self.announce:
                print_notice(f"\nNext speaker: {speaker.name}\n", "green")
            reply = yield from self._reply_steps(speaker)
        except KeyboardInterrupt:
            admin = groupchat.agent_by_name(groupchat.admin_name)
            if admin is None:
                raise
            speaker, reply = admin, (yield from self._reply_steps(admin))
        except NoEligibleSpeaker:
            logger.warning("No eligible speaker found. Terminating the conversation.")
            return None
        return None if reply is None else (speaker, reply)

    def _reply_steps(self, speaker: Agent) -> Steps[ChatMessage | str | None]:
        generate = Step(speaker.generate_reply, speaker.a_generate_reply)
        return (yield from generate(sender=self.manager))

    def _obey_clear_history(self, reply: ChatMessage | str) -> None:
        """Obey the command in a message by a person: those are dictionaries, a model's are text."""
        if not self.groupchat.enable_clear_history or isinstance(reply, str):
            return
        if has_clear_history_command(reply.get("content")):
            clear = getattr(self.manager, "clear_agents_history", clear_agents_history)
            reply["content"] = clear(reply, self.groupchat)

    @contextmanager
    def _cache_of_the_manager(self) -> Generator[None]:
        """Let the agents use the cache of this chat, and their own again afterwards."""
        cache = self.manager.client_cache
        members = self.groupchat.conversable_agents() if cache is not None else []
        previous = [agent.client_cache for agent in members]
        for agent in members:
            agent.client_cache = cache
        try:
            yield
        finally:
            for agent, own in zip(members, previous, strict=True):
                agent.client_cache = own
