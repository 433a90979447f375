"""Tools: a model calls them, another agent executes them."""

import asyncio
from typing import Annotated

from scripted import model_config, outcome, scripted, tool_call, with_model


def run(lib):
    yield from tool_chat(lib)
    yield from failures(lib)
    yield from function_calls(lib)
    yield from asynchronous(lib)
    yield from signatures(lib)


def add(a: Annotated[int, "the first"], b: Annotated[int, "the second"] = 2) -> str:
    return f"sum {a + b}"


def assistant(lib, *replies):
    settings = {"human_input_mode": "NEVER", "llm_config": model_config(*replies)}
    return lib.ConversableAgent("assistant", **settings)


def tool_chat(lib):
    calls = [tool_call("add", '{"a": 1}'), tool_call("add", '{"a": 1, "b": 5}', "call_2")]
    model = assistant(lib, {"tool_calls": calls, "content": None}, "It is 3. TERMINATE")
    user = lib.ConversableAgent(
        "user",
        human_input_mode="NEVER",
        llm_config=False,
        is_termination_msg=lambda message: "TERMINATE" in str(message.get("content")),
    )
    lib.register_function(add, caller=model, executor=user, name="add", description="Add.")
    yield model.llm_config["tools"]
    yield user.function_map
    yield user.initiate_chat(with_model(model), message="1 and 2?")
    yield model.chat_messages


def failures(lib):
    user = lib.ConversableAgent("user", human_input_mode="NEVER", llm_config=False)
    user.register_for_execution(name="add")(add)

    @user.register_for_execution(name="broken")
    def broken() -> str:
        raise ValueError("out of order")

    for name, arguments in (
        ("add", '{"a": 1}'),
        ("add", "not JSON"),
        ("add", '{"other": 1}'),
        ("broken", "{}"),
        ("missing", "{}"),
    ):
        call = {"role": "assistant", "content": None, "tool_calls": [tool_call(name, arguments)]}
        yield user.generate_reply(messages=[call])
    yield user.can_execute_function(["add", "broken"]), user.can_execute_function("missing")


def function_calls(lib):
    call = {"content": None, "function_call": {"name": "add", "arguments": '{"a": 1}'}}
    a = scripted(lib, "a", call, "done")
    user = lib.ConversableAgent(
        "user",
        human_input_mode="NEVER",
        llm_config=False,
        max_consecutive_auto_reply=1,
        function_map={"add": add},
    )
    yield user.initiate_chat(a, message="call it")
    yield a.chat_messages
    user.register_function({"add": None})
    yield user.function_map
    yield outcome(user.register_function, {"add": None})


def asynchronous(lib):
    async def later(text: str) -> str:
        await asyncio.sleep(0)
        return f"later {text}"

    calls = [tool_call("later", '{"text": "x"}'), tool_call("add", '{"a": 1}', "call_2")]
    model = assistant(lib, {"tool_calls": calls, "content": None}, "Done.")
    user = lib.ConversableAgent("user", human_input_mode="NEVER", llm_config=False)
    lib.register_function(later, caller=model, executor=user, name="later", description="L.")
    lib.register_function(add, caller=model, executor=user, name="add", description="Add.")
    yield asyncio.run(user.a_initiate_chat(with_model(model), message="go", max_turns=2))


def signatures(lib):
    model = assistant(lib)
    model.register_for_llm(name="plus", description="Add.")(add)
    model.register_for_llm(name="plus", description="Add again.")(add)
    model.register_for_llm(description="Old.", api_style="function")(add)
    yield model.llm_config.get("tools"), model.llm_config.get("functions")
    model.update_tool_signature("plus", is_remove=True)
    yield model.llm_config.get("tools")
    yield outcome(model.register_for_llm(name="x"), add)
    without = lib.ConversableAgent("without", llm_config=False)
    yield outcome(without.register_for_llm(name="x", description="X."), add)
    yield outcome(without.update_tool_signature, "x", is_remove=True)
