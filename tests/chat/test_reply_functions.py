"""Which reply functions an agent tries, in which order, and what becomes of their replies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cellblock.chat import Agent, AssistantAgent, ConversableAgent, SenderRequired
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


def is_not_b(sender: Agent | None) -> bool:
    return sender is None or sender.name != "b"


async def answer_later(recipient: Any, messages: Any, sender: Any, config: Any) -> tuple[bool, str]:
    await asyncio.sleep(0)
    return True, "later"


def test_the_functions_of_an_agent_stand_in_the_order_in_which_they_are_tried() -> None:
    entries = agent(code_execution_config={"executor": "commandline-local"})._reply_func_list
    names = [each["reply_func"].__name__ for each in entries]
    assert [name for name in names if not name.startswith("a_")] == [
        "check_termination_and_human_reply",
        "generate_function_call_reply",
        "generate_tool_calls_reply",
        "generate_code_execution_reply",
        "generate_oai_reply",
    ]
    assert {name for name in names if name.startswith("a_")} == {
        each["reply_func"].__name__ for each in entries if each["ignore_async_in_sync_chat"]
    }
    assert "generate_code_execution_reply" not in [
        each["reply_func"].__name__ for each in agent()._reply_func_list
    ]


def test_the_last_registered_function_is_tried_first_until_one_is_final() -> None:
    a = agent()
    a.register_reply([Agent, None], answering("first"))
    a.register_reply([Agent, None], answering("second", final=False))
    assert a.generate_reply([TEXT]) == "first"
    a.register_reply([Agent, None], answering("late"), position=2)
    assert a.generate_reply([TEXT]) == "first"
    a.register_reply([Agent, None], answering("only"), remove_other_reply_funcs=True)
    assert a.generate_reply([TEXT]) == "only"
    assert len(a._reply_func_list) == 1


def test_a_function_is_called_with_agent_messages_sender_and_config() -> None:
    a, b = agent(), agent("b")
    calls: list[Any] = []

    def look(recipient: Any, messages: Any, sender: Any, config: Any) -> tuple[bool, None]:
        calls.append((recipient, messages, sender, config))
        return True, None

    a.register_reply(b, look, config={"k": 1})
    with console():
        b.send("hi", a, request_reply=True)
    assert calls == [(a, [{"content": "hi", "role": "user", "name": "b"}], b, {"k": 1})]


@pytest.mark.parametrize(
    ("trigger", "matches_b", "matches_none"),
    [
        (Agent, True, False),
        (ConversableAgent, True, False),
        (AssistantAgent, False, False),
        ([None], False, True),
        ([["b"], None], True, None),
        (is_not_b, False, True),
        ([], False, False),
    ],
)
def test_a_trigger_says_for_whom_a_function_is(
    trigger: Any, matches_b: bool, matches_none: bool | None
) -> None:
    a, b = agent(), agent("b")
    a.register_reply(trigger, answering("yes"))
    assert (a.generate_reply([TEXT], sender=b) == "yes") is matches_b
    if matches_none is not None:
        assert (a.generate_reply([TEXT]) == "yes") is matches_none


def test_a_trigger_by_agent_matches_that_agent() -> None:
    a, b = agent(), agent("b")
    a.register_reply(b, answering("yes"))
    assert a.generate_reply([TEXT], sender=b) == "yes"
    assert a.generate_reply([TEXT], sender=agent("b")) == ""


def test_bad_triggers_are_refused() -> None:
    a = agent()
    for trigger in (3, None):
        with pytest.raises(ValueError, match="trigger must be a class, a string, an agent"):
            a.register_reply(trigger, answering("x"))
    a.register_reply([3], answering("x"))
    with pytest.raises(ValueError, match="Unsupported trigger type: <class 'int'>"):
        a.generate_reply([TEXT])
    b = agent("b")
    b.register_reply("a", answering("x"))
    with pytest.raises(SenderRequired):
        b.generate_reply([TEXT])


def test_functions_can_be_excluded_and_replaced() -> None:
    a = agent(default_auto_reply="default")
    first = answering("first")
    a.register_reply([Agent, None], first)
    assert a.generate_reply([TEXT], exclude=[first]) == "default"
    a.replace_reply_func(first, answering("other"))
    assert a.generate_reply([TEXT]) == "other"
    b = agent("b")
    b.replace_reply_func(
        ConversableAgent.check_termination_and_human_reply, answering("not checked")
    )
    assert b.generate_reply([TEXT]) == "not checked"


def test_asynchronous_functions_are_for_asynchronous_chats() -> None:
    a, b = agent(default_auto_reply="now"), agent("b")
    a.register_reply([Agent, None], answer_later)
    assert a.generate_reply([TEXT]) == "now"
    assert asyncio.run(a.a_generate_reply([TEXT])) == "later"
    with pytest.raises(RuntimeError, match=r"a_initiate_chat\(\)\. The following .*answer_later"):
        b.initiate_chat(a, message="hi", max_turns=1)
    with console():
        assert asyncio.run(b.a_initiate_chat(a, message="hi", max_turns=1)).summary == "later"


def test_an_asynchronous_function_can_be_ignored_in_synchronous_chats() -> None:
    a, b = agent(default_auto_reply="now"), agent("b")
    a.register_reply([Agent, None], answer_later, ignore_async_in_sync_chat=True)
    with console():
        assert b.initiate_chat(a, message="hi", max_turns=1).summary == "now"


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


def test_a_function_must_return_final_and_reply() -> None:
    a = agent()

    def bad(recipient: Any, messages: Any, sender: Any, config: Any) -> str:
        return "reply"

    a.register_reply([Agent, None], bad)
    with pytest.raises(TypeError, match=r"must return \(final, reply\), not 'reply'"):
        a.generate_reply([TEXT])


def test_reset_restores_the_configs_of_functions() -> None:
    a = agent()

    def clear(config: dict[str, int]) -> None:
        config.clear()

    a.register_reply("b", answering("x"), config={"k": 1}, reset_config=clear)
    a.register_reply("b", answering("y"), config={"k": 1})
    for entry in a._reply_func_list[:2]:
        entry["config"]["k"] = 2
    a.reset()
    assert [entry["config"] for entry in a._reply_func_list[:2]] == [{"k": 1}, {}]
