"""`run` and `a_run` of agents, as AG2 has them."""

from __future__ import annotations

import asyncio
from typing import Any

from cellblock.chat import ConversableAgent, LLMConfig
from cellblock.models import (
    CreateResult,
    FunctionCall,
    ModelInfo,
    ReplayChatCompletionClient,
    RequestUsage,
)
from tests.chat.console import console
from tests.chat.scripted import contents, scripted

TOOLS = ModelInfo(
    vision=False, function_calling=True, json_output=True, family="x", structured_output=False
)
CODE = "```sh\necho from the sandbox\n```"


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def with_model(*answers: str | CreateResult) -> ConversableAgent:
    client = ReplayChatCompletionClient(answers, TOOLS)
    return ConversableAgent(
        "helper", llm_config=LLMConfig({"model_client": client, "cache_seed": None})
    )


def call(name: str, arguments: str) -> CreateResult:
    return CreateResult(
        finish_reason="function_calls",
        content=[FunctionCall(id="1", name=name, arguments=arguments)],
        usage=RequestUsage(1, 1),
        cached=False,
    )


def test_a_chat_of_two_agents_runs() -> None:
    one, two = scripted("one", "more"), scripted("two", "answer", "end")
    with console() as stream:
        response = one.run(two, message="question", max_turns=2)
        response.process()
    assert contents(response.messages) == ["question", "answer", "more", "end"]
    assert (response.summary, response.last_speaker) == ("end", "two")
    assert response.cost is not None
    assert "question" in stream.text


def test_a_user_that_is_not_given_executes_tools_and_code() -> None:
    agent = with_model(call("add", '{"a": 2, "b": 3}'), CODE, "It is 5. TERMINATE")
    where: dict[str, Any] = {"code_execution_config": {"use_docker": False}}
    with console():
        response = agent.run(message="2 + 3?", tools=add, executor_kwargs=where, max_turns=5)
    said = contents(response.messages)
    assert said[2] == "5"
    assert "from the sandbox" in said[4]
    assert said[5] == "It is 5. TERMINATE"
    assert isinstance(agent.llm_config, dict)
    assert "tools" not in agent.llm_config


def test_a_person_answers_if_asked() -> None:
    agent = with_model("first", "second")
    with console("go on", "exit"):
        response = agent.run(message="hi", user_input=True)
    assert contents(response.messages) == ["hi", "first", "go on", "second"]


def test_the_user_gets_the_message_if_asked() -> None:
    agent = with_model("never")
    with console():
        response = agent.run(message="hi", msg_to="user", max_turns=1)
    assert contents(response.messages) == ["hi", ""]


def test_an_asynchronous_run_is_awaited() -> None:
    async def work() -> None:
        response = await with_model("hello").a_run(message="hi", max_turns=1)
        await response.process()
        assert contents(await response.messages) == ["hi", "hello"]
        assert (await response.summary, await response.last_speaker) == ("hello", "helper")
        one, two = scripted("one"), scripted("two", "answer")
        assert await (await one.a_run(two, message="q", max_turns=1)).summary == "answer"

    with console():
        asyncio.run(work())
