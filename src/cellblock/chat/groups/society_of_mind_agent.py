"""SocietyOfMindAgent: an agent that lets a group chat find its reply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from ..agent import Agent, ChatMessage, Reply
from ..conversable_agent import ConversableAgent
from ..message_text import content_str
from ..steps import Step, Steps, asynchronous, synchronous
from .group_chat_manager import GroupChatManager

ResponsePreparer = Callable[[Any, list[ChatMessage]], str]
_INTRODUCTION = (
    "Earlier you were asked to fulfill a request. You and your team worked diligently to address "
    "that request. Here is a transcript of that conversation:"
)
_PROMPT = (
    "Output a standalone response to the original request, without mentioning any of the "
    "intermediate discussion."
)


class SocietyOfMindAgent(ConversableAgent):
    """Reply with the result of the group chat of `chat_manager`, which gets each message.

    response_preparer   a function of this agent and the messages of the group chat that returns the
                        reply, or a prompt for this agent's model. By default a prompt with a model,
                        else the last message without `TERMINATE`

    Before each group chat its agents forget the last one, and get what was said to this agent
    before. The other `options` are those of `ConversableAgent`; there is no model by default.
    """

    def __init__(
        self,
        name: str,
        chat_manager: GroupChatManager | None,
        response_preparer: str | ResponsePreparer | None = None,
        **options: Any,
    ) -> None:
        settings: dict[str, Any] = {"system_message": "", "llm_config": False, **options}
        super().__init__(name, **settings)
        self._chat_manager = chat_manager
        if response_preparer is None:
            response_preparer = _last_text if self.client is None else _PROMPT
        self.response_preparer = response_preparer

    def _register_own_replies(self) -> None:
        super()._register_own_replies()
        for asked, instead in (
            (
                ConversableAgent.generate_oai_reply,
                SocietyOfMindAgent.generate_inner_monologue_reply,
            ),
            (
                ConversableAgent.a_generate_oai_reply,
                SocietyOfMindAgent.a_generate_inner_monologue_reply,
            ),
        ):
            self.replace_reply_func(asked, instead)

    @property
    def chat_manager(self) -> GroupChatManager | None:
        """The manager of the group chat; None if this agent has none."""
        return self._chat_manager

    def update_chat_manager(self, chat_manager: GroupChatManager | None) -> None:
        """Use another group chat from now on."""
        self._chat_manager = chat_manager

    @synchronous
    def generate_inner_monologue_reply(
        self,
        messages: list[ChatMessage] | None = None,
        sender: Agent | None = None,
        config: Any = None,
    ) -> Steps[Reply]:
        """Run the group chat about the last message, and return True and the reply."""
        manager = self._chat_manager
        if messages is None:
            messages = self._oai_messages[sender] if sender is not None else []
        if manager is None or not messages:
            return False, None
        manager.reset()
        tell = Step(manager.send, manager.a_send)
        for agent in cast("list[ConversableAgent]", manager.groupchat.agents):
            agent.reset()
            for message in messages[:-1]:
                is_own = message.get("role") == "assistant"
                author = self if is_own or sender is None else sender
                named = {"name": author.name, **message}
                yield from tell(named, agent, request_reply=False, silent=True)
        chat = Step(self.initiate_chat, self.a_initiate_chat)
        yield from chat(manager, message=messages[-1], clear_history=False)
        return True, (yield from self._response_steps(manager.groupchat.messages))

    a_generate_inner_monologue_reply = asynchronous(generate_inner_monologue_reply)

    def _response_steps(self, messages: list[ChatMessage]) -> Steps[str]:
        prepare = self.response_preparer
        if not isinstance(prepare, str):
            return prepare(self, messages)
        transcript = [{"role": "system", "content": _INTRODUCTION}, *map(_as_text, messages)]
        reflect = Step(self._reflection_with_llm, self._a_reflection_with_llm)
        return (yield from reflect(prepare, transcript, None, self.client_cache, "system"))


def _last_text(agent: SocietyOfMindAgent, messages: list[ChatMessage]) -> str:
    return content_str(messages[-1].get("content")).replace("TERMINATE", "").strip()


def _as_text(message: ChatMessage) -> ChatMessage:
    """Return `message` as one that a user wrote, with a call of a function as text."""
    text = message.get("content") or ""
    if not text and (call := message.get("function_call")):
        text = f"{call.get('name')}({call.get('arguments')})"
    return {"role": "user", "content": text, "name": message.get("name", "user")}
