"""Send messages to other agents, receive them, print them."""

from __future__ import annotations

from typing import Any, cast

from ..agent import Agent, ChatMessage
from ..agent_state import AgentState
from ..printing import print_message


class Sending(AgentState):
    """Stores what the agent sends and receives, and replies to it.

    A conversation is a recursion of `send` and `receive`. To stay far from Python's recursion
    limit, their synchronous and asynchronous versions are written out instead of as steps.
    """

    def send(
        self,
        message: ChatMessage | str,
        recipient: Agent,
        request_reply: bool | None = None,
        silent: bool | None = False,
    ) -> None:
        """Send `message` to `recipient`, which replies as `receive` says.

        `silent` suppresses the printing; the agent's own `silent` comes first. Raise `ValueError`
        if the message has neither content nor a call.
        """
        is_silent = self._is_silent(cast(Agent, self), silent)
        message = self._process_message_before_send(message, recipient, is_silent)
        self._store_sent_message(message, recipient)
        cast(Any, recipient).receive(message, self, request_reply, silent)

    async def a_send(
        self,
        message: ChatMessage | str,
        recipient: Agent,
        request_reply: bool | None = None,
        silent: bool | None = False,
    ) -> None:
        """Send `message` to `recipient`; see `send`."""
        is_silent = self._is_silent(cast(Agent, self), silent)
        message = await self._a_process_message_before_send(message, recipient, is_silent)
        self._store_sent_message(message, recipient)
        await cast(Any, recipient).a_receive(message, self, request_reply, silent)

    def receive(
        self,
        message: ChatMessage | str,
        sender: Agent,
        request_reply: bool | None = None,
        silent: bool | None = False,
    ) -> None:
        """Store and print `message` of `sender`, and send the reply.

        `request_reply` says whether to reply; None replies within a chat that was initiated with
        `sender`. Raise `ValueError` if the message has neither content nor a call.
        """
        self._process_received_message(message, sender, silent)
        if not self._is_reply_wanted(sender, request_reply):
            return
        reply = self.generate_reply(messages=self.chat_messages[sender], sender=sender)
        if reply is not None:
            self.send(reply, sender, silent=silent)

    async def a_receive(
        self,
        message: ChatMessage | str,
        sender: Agent,
        request_reply: bool | None = None,
        silent: bool | None = False,
    ) -> None:
        """Store and print `message` of `sender`, and send the reply; see `receive`."""
        self._process_received_message(message, sender, silent)
        if not self._is_reply_wanted(sender, request_reply):
            return
        reply = await self.a_generate_reply(messages=self.chat_messages[sender], sender=sender)
        if reply is not None:
            await self.a_send(reply, sender, silent=silent)

    def stop_reply_at_receive(self, sender: Agent | None = None) -> None:
        """Stop replying to messages of `sender`; None: of all."""
        if sender is None:
            self.reply_at_receive.clear()
        else:
            self.reply_at_receive[sender] = False

    def _is_reply_wanted(self, sender: Agent, request_reply: bool | None) -> bool:
        return self.reply_at_receive[sender] if request_reply is None else request_reply

    def _store_sent_message(self, message: ChatMessage | str, recipient: Agent) -> None:
        if not self._append_oai_message(message, "assistant", recipient, is_sending=True):
            raise _invalid_message("Message")

    def _process_received_message(
        self, message: ChatMessage | str, sender: Agent, silent: bool | None
    ) -> None:
        """Store `message`, and print it unless the sender is silent."""
        if not self._append_oai_message(message, "user", sender, is_sending=False):
            raise _invalid_message("Received message")
        if not self._is_silent(sender, silent):
            self._print_received_message(message, sender)

    def _print_received_message(self, message: ChatMessage | str, sender: Agent) -> None:
        print_message(
            self._message_to_dict(message),
            sender.name,
            self.name,
            print_response=lambda response: self._print_received_message(response, sender),
            use_templates=bool(
                self.llm_config and self.llm_config.get("allow_format_str_template", False)
            ),
        )

    @staticmethod
    def _is_silent(agent: Agent, silent: bool | None = False) -> bool | None:
        """Return the agent's own `silent`, else the one of the call."""
        own: bool | None = getattr(agent, "silent", None)
        return silent if own is None else own


def _invalid_message(what: str) -> ValueError:
    return ValueError(
        f"{what} can't be converted into a valid ChatCompletion message. "
        "Either content or function_call must be provided."
    )
