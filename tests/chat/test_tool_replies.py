"""What an agent answers when a model calls its functions."""

from __future__ import annotations

import asyncio
import contextvars
import json
import os
import signal
import threading
from typing import Any

import pytest

from cellblock.chat import ConversableAgent
from cellblock.models import CreateResult, ReplayChatCompletionClient
from tests.chat.console import console

WHO = contextvars.ContextVar("WHO", default="nobody")


def add(a: int, b: int = 2) -> int:
    return a + b


async def add_later(a: int, b: int = 2) -> int:
    await asyncio.sleep(0)
    return a + b


def fail(a: int) -> int:
    raise ValueError(f"{a} is bad")


async def where() -> str:
    return f"{id(asyncio.get_running_loop())} {WHO.get()}"


def agent(**functions: Any) -> ConversableAgent:
    user = ConversableAgent("user", llm_config=False, human_input_mode="NEVER")
    for function in (add, add_later, fail, where):
        user.register_for_execution()(function)
    user.register_function(functions)
    return user


def tool_call(name: str, identifier: str | None = "1", **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": identifier, "type": "function", "function": function}


def calls(*tool_calls: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": None, "tool_calls": list(tool_calls)}]


def call(name: str, arguments: Any = '{"a": 1}') -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def content_of(reply: Any) -> str:
    assert reply[0] is True
    return reply[1]["content"]


def test_several_calls_are_answered_in_their_order() -> None:
    several = calls(
        tool_call("add", "1", a=1),
        tool_call("fail", "2", a=5),
        tool_call("missing", "3"),
        tool_call("add_later", "4", a=2),
    )
    expected = "3\n\nError: 5 is bad\n\nError: Function missing not found.\n\n4"
    with console() as stream:
        assert content_of(agent().generate_tool_calls_reply(several)) == expected
        assert content_of(asyncio.run(agent().a_generate_tool_calls_reply(several))) == expected
    assert stream.text.split("\n>>>>>>>> EXECUTING ")[1:] == [
        "FUNCTION add...\n",
        "FUNCTION fail...\n",
        "ASYNC FUNCTION add_later...\n",
        "ASYNC FUNCTION add...\n",
        "ASYNC FUNCTION fail...\n",
        "ASYNC FUNCTION add_later...\n",
    ]


def test_async_tools_of_one_message_run_at_the_same_time() -> None:
    both = asyncio.Barrier(2)

    async def meet() -> str:
        await asyncio.wait_for(both.wait(), 10)
        return "met"

    reply = agent(meet=meet).a_generate_tool_calls_reply(
        calls(tool_call("meet", "1"), tool_call("meet", "2"))
    )
    assert content_of(asyncio.run(reply)) == "met\n\nmet"


def test_an_answer_to_a_call_without_id_has_none() -> None:
    unnamed = calls(tool_call("add", None, a=1))
    response = {"role": "tool", "content": "3"}
    expected = (True, {"role": "tool", "tool_responses": [response], "content": "3"})
    with console():
        assert agent().generate_tool_calls_reply(unnamed) == expected
        assert asyncio.run(agent().a_generate_tool_calls_reply(unnamed)) == expected


@pytest.mark.parametrize("name", ["add", "add_later"])
def test_a_function_call_is_answered_with_the_result(name: str) -> None:
    message = [{"role": "assistant", "content": None, "function_call": call(name)}]
    expected = (True, {"role": "function", "name": name, "content": "3"})
    with console():
        assert agent().generate_function_call_reply(message) == expected
        assert asyncio.run(agent().a_generate_function_call_reply(message)) == expected


@pytest.mark.parametrize(
    "messages", [[], [{"content": "Hi"}], [{"content": "Hi", "tool_calls": None}]]
)
def test_a_message_without_call_is_left_to_other_replies(messages: list[dict[str, Any]]) -> None:
    user = agent()
    assert user.generate_tool_calls_reply(messages) == (False, None)
    assert user.generate_function_call_reply(messages) == (False, None)
    assert asyncio.run(user.a_generate_tool_calls_reply(messages)) == (False, None)
    assert asyncio.run(user.a_generate_function_call_reply(messages)) == (False, None)


@pytest.mark.parametrize(
    ("function_call", "succeeded", "content"),
    [
        (call("add", '{"a": 1, "b":\n 5}'), True, "6"),
        (call("echo", {"object": "a dict"}), True, "a dict"),
        (call("nothing", "null"), True, "None"),
        (call("nothing", None), True, "None"),
        (call("fail"), False, "Error: 1 is bad"),
        (call("later"), True, "later"),
    ],
)
def test_a_call_is_executed_or_its_error_reported(
    function_call: dict[str, Any], succeeded: bool, content: str
) -> None:
    async def later(a: int) -> str:
        return "later"

    user = agent(echo=str, nothing=lambda: None, later=later)
    expected = (
        succeeded,
        {"name": function_call["name"], "role": "function", "content": content},
    )
    with console():
        assert user.execute_function(function_call) == expected
        assert asyncio.run(user.a_execute_function(function_call)) == expected


def test_verbose_execution_prints_arguments_and_result() -> None:
    with console() as stream:
        agent().execute_function(call("add"), verbose=True)
    assert stream.text == (
        "\n>>>>>>>> EXECUTING FUNCTION add...\n\nInput arguments: {'a': 1}\nOutput:\n3\n"
    )


def test_an_interrupt_in_a_tool_ends_the_chat() -> None:
    def interrupted() -> str:
        raise KeyboardInterrupt

    user = agent(interrupted=interrupted)
    with console(), pytest.raises(KeyboardInterrupt):
        user.generate_tool_calls_reply(calls(tool_call("interrupted")))


def test_an_interrupt_cancels_an_async_tool() -> None:
    cleaned_up: list[bool] = []

    async def slow() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(60)
        finally:
            cleaned_up.append(True)

    with console(), pytest.raises(KeyboardInterrupt):
        agent(slow=slow).generate_tool_calls_reply(calls(tool_call("slow")))
    assert cleaned_up == [True]


def test_a_subclass_can_execute_functions_itself() -> None:
    class Own(ConversableAgent):
        def execute_function(
            self, func_call: Any, verbose: bool = False
        ) -> tuple[bool, dict[str, Any]]:
            return True, {"name": "own", "role": "function", "content": func_call["name"]}

    own = Own("own", llm_config=False, function_map={"add": add})
    assert content_of(own.generate_tool_calls_reply(calls(tool_call("add", a=1)))) == "add"
    message = [{"function_call": call("add")}]
    assert content_of(own.generate_function_call_reply(message)) == "add"


def test_async_tools_of_synchronous_chats_share_a_loop_and_see_the_context() -> None:
    user = agent()
    twice = calls(tool_call("where", "1"), tool_call("where", "2"))
    context = contextvars.copy_context()
    context.run(WHO.set, "me")
    with console():
        reply = context.run(user.generate_tool_calls_reply, twice)
    first, second = content_of(reply).split("\n\n")
    assert first == second
    assert first.endswith(" me")


def test_an_async_tool_works_when_the_caller_runs_a_loop() -> None:
    async def main() -> str:
        return content_of(agent().generate_tool_calls_reply(calls(tool_call("add_later", a=1))))

    with console():
        assert asyncio.run(main()) == "3"


def test_an_async_tool_can_start_a_synchronous_chat_with_an_async_tool() -> None:
    async def outer() -> str:
        return content_of(agent().generate_tool_calls_reply(calls(tool_call("add_later", a=1))))

    with console():
        reply = agent(outer=outer).generate_tool_calls_reply(calls(tool_call("outer")))
    assert content_of(reply) == "3"


def test_a_function_that_is_not_async_runs_in_the_thread_of_the_loop() -> None:
    user = agent(thread=threading.get_ident)
    with console():
        reply = asyncio.run(user.a_generate_tool_calls_reply(calls(tool_call("thread"))))
    assert content_of(reply) == str(threading.get_ident())


def model(*answers: str | CreateResult) -> dict[str, Any]:
    return {"config_list": [{"model_client": ReplayChatCompletionClient(list(answers))}]}
