"""When an agent asks a person, with which words, and what the answer does."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from cellblock.chat import ConversableAgent
from tests.chat.console import console

NO_INPUT = "\n>>>>>>>> NO HUMAN INPUT RECEIVED.\n"
AUTO_REPLY = "\n>>>>>>>> USING AUTO REPLY...\n"
TEXT: dict[str, Any] = {"role": "user", "content": "x"}


def said(text: str) -> tuple[bool, dict[str, Any]]:
    """Return the reply of a person."""
    return True, {"role": "user", "content": text}


def test_a_limit_of_zero_makes_an_empty_answer_the_reply() -> None:
    h = ConversableAgent("h", llm_config=False, max_consecutive_auto_reply=0)
    with console(""):
        assert h.check_termination_and_human_reply([TEXT]) == said("")


def test_an_answer_to_a_call_interrupts_the_call() -> None:
    h = ConversableAgent("h", llm_config=False, human_input_mode="ALWAYS")
    calls = [{"id": "i1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    with console("no", "no") as stream:
        _, reply = h.check_termination_and_human_reply([{"content": "", "tool_calls": calls}])
        _, old = h.check_termination_and_human_reply([{"function_call": {"name": "f"}}])
    assert isinstance(reply, dict)
    assert isinstance(old, dict)
    assert reply["tool_responses"] == [
        {"role": "tool", "tool_call_id": "i1", "content": "USER INTERRUPTED"}
    ]
    assert old["tool_responses"] == [
        {"role": "function", "name": "f", "content": "USER INTERRUPTED"}
    ]
    assert "feedback to the sender." in stream.prompts[0]


def test_an_asynchronous_chat_asks_once_and_does_not_block_the_loop() -> None:
    threads: list[threading.Thread] = []

    class Asked(ConversableAgent):
        def get_human_input(self, prompt: str) -> str:
            threads.append(threading.current_thread())
            return ""

    h = Asked("h", llm_config=False, human_input_mode="ALWAYS", default_auto_reply="auto")
    with console() as stream:
        assert asyncio.run(h.a_generate_reply([TEXT])) == "auto"
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
    assert stream.text == NO_INPUT + AUTO_REPLY


def test_an_agent_can_be_asked_elsewhere_in_an_asynchronous_chat() -> None:
    class Web(ConversableAgent):
        async def a_get_human_input(self, prompt: str) -> str:
            await asyncio.sleep(0)
            return "from the web"

    h = Web("h", llm_config=False, human_input_mode="ALWAYS")
    assert asyncio.run(h.a_generate_reply([TEXT])) == said("from the web")[1]


def test_the_end_of_input_keeps_the_conversation() -> None:
    b = ConversableAgent("b", llm_config=False, human_input_mode="NEVER")
    h = ConversableAgent("h", llm_config=False, human_input_mode="ALWAYS")
    with console(), pytest.raises(EOFError) as caught:
        b.initiate_chat(h, message="hi")
    assert any("human_input_mode='NEVER'" in note for note in caught.value.__notes__)
    assert h.last_message(b) == {"content": "hi", "role": "user", "name": "b"}


def test_ctrl_c_at_a_prompt_keeps_the_conversation() -> None:
    class Interrupted(ConversableAgent):
        def get_human_input(self, prompt: str) -> str:
            raise KeyboardInterrupt

    b = ConversableAgent("b", llm_config=False, human_input_mode="NEVER")
    h = Interrupted("h", llm_config=False, human_input_mode="ALWAYS")
    with console(), pytest.raises(KeyboardInterrupt):
        b.initiate_chat(h, message="hi")
    assert h.last_message(b) == {"content": "hi", "role": "user", "name": "b"}


def test_a_termination_test_that_raises_is_named_and_loses_no_message() -> None:
    def ends(message: dict[str, Any]) -> bool:
        return bool(message["content"].rstrip())

    b = ConversableAgent("b", llm_config=False, human_input_mode="NEVER")
    h = ConversableAgent("h", llm_config=False, human_input_mode="NEVER", is_termination_msg=ends)
    with console(), pytest.raises(AttributeError) as caught:
        b.send({"content": [{"type": "text", "text": "x"}]}, h, request_reply=True)
    assert any("is_termination_msg of agent 'h'" in note for note in caught.value.__notes__)
    assert h.last_message(b)


def test_there_must_be_a_message_to_reply_to() -> None:
    h = ConversableAgent("h", llm_config=False)
    with pytest.raises(ValueError, match="no message that 'h' can reply to"):
        h.generate_reply([])
    with pytest.raises(AssertionError, match="Either messages=None or sender=None"):
        h.generate_reply()


def test_automatic_replies_are_limited_for_each_sender() -> None:
    a = ConversableAgent("a", llm_config=False, human_input_mode="NEVER")
    b = ConversableAgent("b", llm_config=False)
    assert a.max_consecutive_auto_reply() == a.max_consecutive_auto_reply(b) == 100
    a.update_max_consecutive_auto_reply(1, b)
    assert (a.max_consecutive_auto_reply(), a.max_consecutive_auto_reply(b)) == (100, 1)
    assert a.generate_reply([TEXT], b) == ""
    assert a.generate_reply([TEXT], b) is None
    assert a.generate_reply([TEXT], b) == ""
    a.reset_consecutive_auto_reply_counter(b)
    assert a.generate_reply([TEXT], b) == ""
    a.update_max_consecutive_auto_reply(7)
    assert (a.max_consecutive_auto_reply(), a.max_consecutive_auto_reply(b)) == (7, 7)
