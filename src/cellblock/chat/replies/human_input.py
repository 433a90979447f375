"""Ask a person for the reply, or end the conversation, as `human_input_mode` says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, get_args

from ..agent import Agent, ChatMessage, HumanInputMode, Reply
from ..io import IOStream
from ..message_text import content_str
from ..printing import print_notice
from ..steps import Step, Steps
from .auto_reply_limits import AutoReplyLimits

INTERRUPTED = "USER INTERRUPTED"


class TakesInput(Protocol):
    """An agent that a person can answer for."""

    human_input_mode: HumanInputMode

    @property
    def name(self) -> str: ...
    def get_human_input(self, prompt: str) -> str: ...
    async def a_get_human_input(self, prompt: str) -> str: ...


class People:
    """Checks for the end of a conversation, and asks the person.

    `answers` are the lines that were typed. By default a message whose whole content is
    `TERMINATE` ends the conversation. Raise `TypeError` if `is_termination_msg` is not a function.
    """

    def __init__(
        self, is_termination_msg: Callable[[ChatMessage], bool] | None, limits: AutoReplyLimits
    ) -> None:
        if is_termination_msg is not None and not callable(is_termination_msg):
            raise TypeError(
                "is_termination_msg must be a function that takes a message, such as lambda "
                "message: 'TERMINATE' in (message.get('content') or ''). "
                f"It is {is_termination_msg!r:.100}."
            )
        self.is_termination_msg = is_termination_msg or _is_terminate
        self.limits = limits
        self.answers: list[str] = []

    def read_line(self, agent: TakesInput, prompt: str) -> str:
        """Show `prompt` and return the line that a person types for `agent`."""
        try:
            answer = IOStream.get_default().input(prompt)
        except EOFError as error:
            error.add_note(
                f"Agent '{agent.name}' waited for a person, and the input ended. "
                "Use human_input_mode='NEVER' where there is no person to answer."
            )
            raise
        self.answers.append(answer)
        return answer

    def reply_steps(
        self, agent: TakesInput, messages: list[ChatMessage], sender: Agent | None
    ) -> Steps[Reply]:
        """Return what `agent` replies; see `check_termination_and_human_reply`."""
        if not messages:
            raise ValueError(f"There is no message that '{agent.name}' can reply to.")
        message = messages[-1]
        answer = yield from self._answer_steps(agent, message, sender)
        if answer == "exit":
            self.limits.counts[sender] = 0
            return True, None
        if answer or self.limits.by_sender[sender] == 0:
            self.limits.counts[sender] = 0
            return True, _human_message(answer, message)
        self.limits.counts[sender] += 1
        if agent.human_input_mode != "NEVER":
            print_notice("\n>>>>>>>> USING AUTO REPLY...")
        return False, None

    def _answer_steps(
        self, agent: TakesInput, message: ChatMessage, sender: Agent | None
    ) -> Steps[str]:
        """Return what the person types; `exit` for the end, and nothing for an automatic reply."""
        whom = "the sender" if sender is None else sender.name
        if agent.human_input_mode == "ALWAYS":
            answer = yield from _ask_steps(
                agent,
                f"Replying as {agent.name}. Provide feedback to {whom}. Press enter to skip and "
                "use auto-reply, or type 'exit' to end the conversation: ",
            )
            return answer or ("exit" if self.ends_conversation(agent.name, message) else "")
        is_last = self.ends_conversation(agent.name, message)
        if not is_last and not self.limits.is_reached(sender):
            return ""
        if agent.human_input_mode == "NEVER":
            return "exit"
        skip = "" if is_last else " to skip and use auto-reply,"
        answer = yield from _ask_steps(
            agent,
            f"Please give feedback to {whom}. Press enter{skip} or type 'exit' to stop the "
            "conversation: ",
        )
        return answer or ("exit" if is_last else "")

    def ends_conversation(self, name: str, message: ChatMessage) -> bool:
        """Return True if `message` ends the conversation for the agent `name`."""
        try:
            return bool(self.is_termination_msg(message))
        except Exception as error:
            error.add_note(
                f"is_termination_msg of agent '{name}' failed. The content of a message can "
                "be None or a list, so write (message.get('content') or '')."
            )
            raise


def valid_mode(mode: HumanInputMode) -> HumanInputMode:
    """Return `mode`. Raise `ValueError` if it is unknown."""
    if mode not in get_args(HumanInputMode):
        raise ValueError(
            f"human_input_mode must be 'ALWAYS', 'TERMINATE' or 'NEVER', not {mode!r}."
        )
    return mode


def _is_terminate(message: ChatMessage) -> bool:
    return content_str(message.get("content")) == "TERMINATE"


def _ask_steps(agent: TakesInput, prompt: str) -> Steps[str]:
    answer = yield from Step(agent.get_human_input, agent.a_get_human_input)(prompt)
    if not answer:
        print_notice("\n>>>>>>>> NO HUMAN INPUT RECEIVED.")
    return answer


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
