"""Which reply functions an agent tries, in which order, and what becomes of their replies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cellblock.chat import Agent, ConversableAgent
from tests.chat.console import console

TEXT: dict[str, Any] = {"role": "user", "content": "x"}


def agent(name: str = "a", **options: Any) -> ConversableAgent:
    """Return an agent that asks nobody."""
    return ConversableAgent(name, llm_config=False, human_input_mode="NEVER", **options)


def answering(text: str, final: bool = True) -> Any:
    """Return a reply function."""

    def answer(recipient: Any, messages: Any, sender: Any, config: Any) -> tuple[bool, str]:
        return final, text

    return answer


async def answer_later(recipient: Any, messages: Any, sender: Any, config: Any) -> tuple[bool, str]:
    await asyncio.sleep(0)
    return True, "later"


def test_an_object_and_a_function_that_return_awaitables_work_in_asynchronous_chats() -> None:
    class Later:
        async def __call__(self, *arguments: Any, **options: Any) -> tuple[bool, str]:
            return True, "object"

    def returning(*arguments: Any, **options: Any) -> Any:
        return answer_later(*arguments, **options)

    for function, reply in ((Later(), "object"), (returning, "later")):
        a = agent()
        a.register_reply([Agent, None], function)
        assert asyncio.run(a.a_generate_reply([TEXT])) == reply


def test_a_function_with_an_asynchronous_version_runs_once_in_an_asynchronous_chat() -> None:
    a = agent(max_consecutive_auto_reply=2)
    assert [asyncio.run(a.a_generate_reply([TEXT])) for _ in range(3)] == ["", "", None]


def test_a_function_of_ones_own_class_is_not_replaced_by_another_method() -> None:
    class Own(ConversableAgent):
        def answer(self, messages: Any, sender: Any, config: Any) -> tuple[bool, str]:
            return True, "registered"

        async def a_answer(self, messages: Any, sender: Any, config: Any) -> tuple[bool, str]:
            return True, "not registered"

    own = Own("own", llm_config=False)
    own.register_reply([Agent, None], Own.answer)
    assert asyncio.run(own.a_generate_reply([TEXT])) == "registered"


@pytest.mark.parametrize("reply", [None, {"content": "d"}, ["l"], 5])
def test_a_final_reply_is_returned_as_it_is(reply: Any) -> None:
    a = agent()
    a.register_reply([Agent, None], answering(reply))
    assert a.generate_reply([TEXT]) == reply


@pytest.mark.parametrize("default", ["", None, "txt", {"content": "d"}])
def test_without_a_final_reply_the_default_is_returned(default: Any) -> None:
    assert agent(default_auto_reply=default).generate_reply([TEXT]) == default


def test_a_function_that_raises_is_named_and_loses_no_message() -> None:
    def boom(recipient: Any, messages: Any, sender: Any, config: Any) -> Any:
        raise LookupError("boom")

    a, b = agent(), agent("b")
    a.register_reply([Agent, None], boom)
    with console(), pytest.raises(LookupError, match="boom") as caught:
        b.initiate_chat(a, message="hi")
    assert caught.value.__notes__ == ["Reply function 'boom' of agent 'a'."]
    assert a.last_message(b) == {"content": "hi", "role": "user", "name": "b"}


def test_a_list_of_final_and_reply_counts() -> None:
    a = agent()
    a.register_reply([Agent, None], lambda *_, **__: [True, "hi"])
    assert a.generate_reply([TEXT]) == "hi"
    assert asyncio.run(a.a_generate_reply([TEXT])) == "hi"


def test_a_function_must_return_final_and_reply() -> None:
    a = agent()

    def bad(recipient: Any, messages: Any, sender: Any, config: Any) -> str:
        return "reply"

    a.register_reply([Agent, None], bad)
    with pytest.raises(TypeError, match=r"must return \(final, reply\), not 'reply'"):
        a.generate_reply([TEXT])
