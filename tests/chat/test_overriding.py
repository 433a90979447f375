"""Check that a method which a subclass overrides is the one that all parts of an agent call."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from cellblock.chat import ConversableAgent
from cellblock.models import ReplayChatCompletionClient

OVERRIDDEN = """
    _append_oai_message _generate_oai_reply_from_client _handle_carryover _match_trigger
    _prepare_chat _print_received_message _process_message_before_send _process_received_message
    _raise_exception_on_async_reply_functions _reflection_with_llm _str_for_tool_response
    _summarize_chat _wrap_function a_execute_function chat_messages_for_summary clear_history
    execute_code_blocks execute_function generate_init_message generate_reply get_human_input
    initiate_chat last_message max_consecutive_auto_reply process_all_messages_before_reply
    process_last_received_message receive register_function register_reply
    reset_consecutive_auto_reply_counter run_code send stop_reply_at_receive update_tool_signature
""".split()
# What an asynchronous chat calls in the asynchronous version.
ASYNCHRONOUS = """
    execute_function generate_init_message generate_reply get_human_input initiate_chat
    process_all_messages_before_reply process_last_received_message receive send
""".split()
NOT_IN_ASYNCHRONOUS_CHATS = {
    "_process_message_before_send",
    "_raise_exception_on_async_reply_functions",
    "_reflection_with_llm",
    "_summarize_chat",
}


def message_with_calls(*names: str) -> dict[str, Any]:
    calls = [
        {"id": name, "type": "function", "function": {"name": name, "arguments": '{"x": 1}'}}
        for name in names
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def recording(name: str, called: set[str]) -> Callable[..., Any]:
    """Return the method `name`, which also adds its name to `called`."""
    method = getattr(ConversableAgent, name)

    async def call_async(*arguments: Any, **options: Any) -> Any:
        called.add(name)
        return await method(*arguments, **options)

    def call(*arguments: Any, **options: Any) -> Any:
        called.add(name)
        return method(*arguments, **options)

    chosen = call_async if inspect.iscoroutinefunction(method) else call
    return functools.wraps(method)(chosen)


def recorder(names: set[str], called: set[str]) -> type[ConversableAgent]:
    """Return a class that overrides the methods `names`, and adds those that are called."""
    methods = {name: recording(name, called) for name in names}

    def input_of_person(agent: ConversableAgent, prompt: str) -> str:
        called.add("get_human_input")
        return "exit"

    return type("Recorder", (ConversableAgent,), {**methods, "get_human_input": input_of_person})


def pair(kind: type[ConversableAgent]) -> tuple[ConversableAgent, ConversableAgent]:
    """Return a user who runs code and functions, and an agent with a model."""
    replies = ["```sh\necho one\n```", "TERMINATE", "a summary"]
    model = {"model": "m", "model_client": ReplayChatCompletionClient(replies)}
    user = kind("user", code_execution_config={"use_docker": False, "sandbox": False})
    asked = kind("asked", llm_config={"config_list": [model]}, human_input_mode="NEVER")

    def double(x: int) -> int:
        return 2 * x

    async def triple(x: int) -> int:
        return 3 * x

    for tool in (double, triple):
        asked.register_for_llm(description="Multiply.")(tool)
        user.register_for_execution()(tool)
    return user, asked


CHAT: dict[str, Any] = {"message": "one", "summary_method": "reflection_with_llm"}


def test_synchronous_chats_call_what_a_subclass_overrides() -> None:
    called: set[str] = set()
    user, asked = pair(recorder(set(OVERRIDDEN), called))
    assert user.initiate_chat(asked, **CHAT).summary == "a summary"
    user.generate_reply([message_with_calls("double", "triple")], asked)
    other = type(user)("other", default_auto_reply="none")
    nested: dict[str, Any] = {"recipient": other, "message": "two", "max_turns": 1}
    user.register_nested_chats([nested], trigger=asked, position=0)
    user.generate_reply([{"role": "user", "content": "three"}], asked)
    user.reset()
    assert sorted(set(OVERRIDDEN) - called) == []


def test_asynchronous_chats_call_what_a_subclass_overrides() -> None:
    names = {f"a_{each}" for each in ASYNCHRONOUS if each != "get_human_input"}
    names |= set(OVERRIDDEN) - set(ASYNCHRONOUS) - NOT_IN_ASYNCHRONOUS_CHATS
    called: set[str] = set()
    user, asked = pair(recorder(names, called))

    async def chat() -> None:
        result = await user.a_initiate_chat(asked, **CHAT)
        assert result.summary == "a summary"
        await user.a_generate_reply([message_with_calls("double", "triple")], asked)
        other = type(user)("other", default_auto_reply="none")
        nested: dict[str, Any] = {
            "recipient": other, "message": "two", "max_turns": 1, "chat_id": 1,
        }  # fmt: skip
        user.register_nested_chats([nested], trigger=asked, position=0, use_async=True)
        await user.a_generate_reply([{"role": "user", "content": "three"}], asked)
        user.reset()

    asyncio.run(chat())
    assert sorted((names | {"get_human_input"}) - called) == []


def test_attributes_that_subclasses_set_are_what_the_agent_uses(
    capsys: pytest.CaptureFixture[str],
) -> None:
    a, b = ConversableAgent("a", default_auto_reply="go"), ConversableAgent("b")
    a.human_input_mode = "NEVER"
    a._is_termination_msg = lambda message: message["content"] == "stop"
    a._default_auto_reply = "went"
    assert a.generate_reply([{"role": "user", "content": "stop"}], b) is None
    assert a.generate_reply([{"role": "user", "content": "TERMINATE"}], b) == "went"
    a._oai_messages = {b: [{"role": "user", "content": "kept"}]}  # pyright: ignore[reportAttributeAccessIssue] - scripts set a dict
    assert a.last_message(b) == {"role": "user", "content": "kept"}
    a._reply_func_list = []
    assert a.generate_reply([{"role": "user", "content": "stop"}], b) == "went"
    a._human_input = ["typed"]
    a._function_map = {"f": len}
    assert a.can_execute_function("f")
    assert a.function_map == {"f": len}
    assert capsys.readouterr().out == ""
