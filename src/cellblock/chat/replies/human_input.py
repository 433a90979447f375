"""Ask a person for the reply, or end the conversation, as `human_input_mode` says."""

from __future__ import annotations

from typing import Any

from ...agents.user_proxy_agent import call_input_func
from ..agent import Agent, ChatMessage
from ..agent_state import AgentState, Reply
from ..io import IOStream
from ..printing import print_notice
from ..steps import Step, Steps, run, run_async

INTERRUPTED = "USER INTERRUPTED"


class HumanReplies(AgentState):
    """Checks for the end of a conversation, and asks the person."""

    def get_human_input(self, prompt: str) -> str:
        """Show `prompt` and return the line that a person types. Override it to ask elsewhere.

        Raise `EOFError` at the end of the input.
        """
        try:
            answer = IOStream.get_default().input(prompt)
        except EOFError as error:
            error.add_note(
                f"Agent '{self.name}' waited for a person, and the input ended. "
                "Use human_input_mode='NEVER' where there is no person to answer."
            )
            raise
        self._human_input.append(answer)
        return answer

    async def a_get_human_input(self, prompt: str) -> str:
        """Return what `get_human_input` returns, without blocking the event loop."""
        return await call_input_func(self.get_human_input, prompt, None)

    def check_termination_and_human_reply(
        self,
        messages: list[ChatMessage] | None = None,
        sender: Agent | None = None,
        config: Any = None,
    ) -> Reply:
        """Return `(True, reply)` for the reply of a person, and `(True, None)` for the end.

        Return `(False, None)` if the agent replies by itself.
        """
        return run(self._human_reply_steps(messages, sender))

    async def a_check_termination_and_human_reply(
        self,
        messages: list[ChatMessage] | None = None,
        sender: Agent | None = None,
        config: Any = None,
    ) -> Reply:
        """Do what `check_termination_and_human_reply` does, with `a_get_human_input`."""
        return await run_async(self._human_reply_steps(messages, sender))

    def _human_reply_steps(
        self, messages: list[ChatMessage] | None, sender: Agent | None
    ) -> Steps[Reply]:
        if messages is None:
            messages = self._oai_messages[sender] if sender is not None else []
        if not messages:
            raise ValueError(f"There is no message that '{self.name}' can reply to.")
        message = messages[-1]
        answer = yield from self._human_answer_steps(message, sender)
        if answer == "exit":
            self._consecutive_auto_reply_counter[sender] = 0
            return True, None
        if answer or self._max_consecutive_auto_reply_dict[sender] == 0:
            self._consecutive_auto_reply_counter[sender] = 0
            return True, _human_message(answer, message)
        self._consecutive_auto_reply_counter[sender] += 1
        if self.human_input_mode != "NEVER":
            print_notice("\n>>>>>>>> USING AUTO REPLY...")
        return False, None

    def _human_answer_steps(self, message: ChatMessage, sender: Agent | None) -> Steps[str]:
        """Return what the person types; `exit` for the end, and nothing for an automatic reply."""
        whom = "the sender" if sender is None else sender.name
        if self.human_input_mode == "ALWAYS":
            answer = yield from self._ask_human_steps(
                f"Replying as {self.name}. Provide feedback to {whom}. Press enter to skip and "
                "use auto-reply, or type 'exit' to end the conversation: "
            )
            return answer or ("exit" if self._ends_conversation(message) else "")
        is_last = self._ends_conversation(message)
        if not is_last and not self._has_reached_reply_limit(sender):
            return ""
        if self.human_input_mode == "NEVER":
            return "exit"
        skip = "" if is_last else " to skip and use auto-reply,"
        answer = yield from self._ask_human_steps(
            f"Please give feedback to {whom}. Press enter{skip} or type 'exit' to stop the "
            "conversation: "
        )
        return answer or ("exit" if is_last else "")

    def _ask_human_steps(self, prompt: str) -> Steps[str]:
        answer = yield from Step(self.get_human_input, self.a_get_human_input)(prompt)
        if not answer:
            print_notice("\n>>>>>>>> NO HUMAN INPUT RECEIVED.")
        return answer

    def _ends_conversation(self, message: ChatMessage) -> bool:
        try:
            return bool(self._is_termination_msg(message))
        except Exception as error:
            error.add_note(
                f"is_termination_msg of agent '{self.name}' failed. The content of a message can "
                "be None or a list, so write (message.get('content') or '')."
            )
            raise

    def _has_reached_reply_limit(self, sender: Agent | None) -> bool:
        limit = self._max_consecutive_auto_reply_dict[sender]
        return self._consecutive_auto_reply_counter[sender] >= limit


def _human_message(answer: str, message: ChatMessage) -> ChatMessage:
    """Return the answer as a message, with a result for each call that it interrupts."""
    responses: list[ChatMessage] = []
    if message.get("function_call"):
        name = message["function_call"].get("name", "")
        responses.append({"role": "function", "name": name, "content": INTERRUPTED})
    for call in message.get("tool_calls") or ():
        identifier = call.get("id", "")
        responses.append({"role": "tool", "tool_call_id": identifier, "content": INTERRUPTED})
    reply: ChatMessage = {"role": "user", "content": answer}
    return {**reply, "tool_responses": responses} if responses else reply
