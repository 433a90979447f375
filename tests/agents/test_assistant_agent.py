"""What AssistantAgent does beyond the scenario `assistant`: pictures, cancellation, errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from cellblock import CancellationToken
from cellblock.agents import (
    AssistantAgent,
    Handoff,
    HandoffMessage,
    TextMessage,
    ToolCallExecutionEvent,
    ToolCallSummaryMessage,
)
from cellblock.components import load_component
from cellblock.errors import ComponentError, ModelOutputError
from cellblock.models import (
    BufferedChatCompletionContext,
    CreateResult,
    FunctionCall,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    Image,
    LLMMessage,
    ReplayChatCompletionClient,
    RequestUsage,
    UserMessage,
)
from cellblock.teams import RoundRobinGroupChat
from cellblock.tools import FunctionTool, StaticWorkbench, ToolResult
from tests.agents import scripted

PIXEL = Image.from_base64(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def model(*answers: str | CreateResult, vision: bool = False) -> ReplayChatCompletionClient:
    return scripted.model(*answers, vision=vision, function_calling=True)


def calls(*names: str, arguments: Mapping[str, Any] | str = "{}") -> CreateResult:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    requests = [
        FunctionCall(id=str(number), name=name, arguments=text) for number, name in enumerate(names)
    ]
    return CreateResult(
        finish_reason="function_calls", content=requests, usage=RequestUsage(1, 1), cached=False
    )


async def context_of(agent: AssistantAgent) -> list[LLMMessage]:
    return list(await agent.model_context.get_messages())


async def draw() -> Image:
    """Draw a pixel."""
    return PIXEL


async def hello() -> str:
    """Greet."""
    return "hello"


@pytest.mark.parametrize("vision", [True, False])
def test_pictures_of_a_tool_are_shown_to_a_model_with_vision(vision: bool) -> None:
    client = model(calls("draw", "hello"), "a pixel", vision=vision)
    agent = AssistantAgent("a", client, tools=[draw, hello], reflect_on_tool_use=True)
    asyncio.run(agent.run(task="draw"))
    results, pictures = client.create_calls[1]["messages"][-2:]
    assert [result.content for result in results.content] == ["[image]", "hello"]
    assert isinstance(pictures, UserMessage)
    text = "The pictures of the result of draw:"
    assert pictures.content == ([text, PIXEL] if vision else f"{text}\n<image>")


def test_tool_calls_run_at_the_same_time() -> None:
    async def scenario() -> None:
        both_run = asyncio.Barrier(2)

        async def meet() -> str:
            """Wait for the other call."""
            await both_run.wait()
            return "met"

        agent = AssistantAgent("a", model(calls("meet", "meet")), tools=[meet])
        result = await agent.run(task="go")
        assert result.messages[-1].to_text() == "met\nmet"

    asyncio.run(scenario())


@pytest.mark.parametrize("by_token", [True, False])
def test_a_cancelled_tool_call_leaves_the_context_complete(by_token: bool) -> None:
    waiting = asyncio.Event()
    ended: list[str] = []

    class Deaf(StaticWorkbench):
        """A workbench that does not look at the token."""

        async def call_tool(self, *args: Any, **arguments: Any) -> ToolResult:
            waiting.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("tool")
            raise AssertionError

    async def scenario() -> None:
        workbench = Deaf([FunctionTool(hello, "greets")])
        agent = AssistantAgent("a", model(calls("hello"), "fine"), workbench=workbench)
        token = CancellationToken()
        message = TextMessage(content="go", source="user")
        task = asyncio.create_task(agent.on_messages([message], token))
        await waiting.wait()
        if by_token:
            token.cancel()
        else:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["tool"]
        assert [type(message) for message in await context_of(agent)] == [UserMessage]
        assert (await agent.run(task="again")).messages[-1].to_text() == "fine"

    asyncio.run(scenario())


@pytest.mark.parametrize("answers", [["fine"], [calls("hello"), "fine"]])
def test_a_message_that_a_team_delivers_again_is_in_the_context_once(answers: list[Any]) -> None:
    class Flaky(ReplayChatCompletionClient):
        async def create(self, *args: Any, **arguments: Any) -> CreateResult:
            result = await super().create(*args, **arguments)
            if result.content == "broken":
                raise ConnectionError("try again")
            return result

    async def scenario() -> None:
        client = Flaky([*answers[:-1], "broken", *answers[-1:]], model().model_info)
        agent = AssistantAgent("a", client, tools=[hello], max_tool_iterations=2)
        team = RoundRobinGroupChat([agent], max_turns=1)
        with pytest.raises(ConnectionError):
            await team.run(task="go")
        await team.run()
        contents = [message.content for message in await context_of(agent)]
        assert contents.count("go") == 1
        assert contents[-1] == "fine"

    asyncio.run(scenario())


async def test_a_message_that_was_answered_can_come_again() -> None:
    agent = AssistantAgent("a", model("one", calls("hello"), "two"), tools=[hello])
    task = TextMessage(content="go", source="user")
    for _ in range(3):
        await agent.run(task=task)
    contents = [message.content for message in await context_of(agent)]
    assert contents.count("go") == 3


def test_a_handoff_needs_a_name_that_models_can_call() -> None:
    with pytest.raises(ValueError, match="must be a valid identifier: to b"):
        Handoff(target="b", name="to b")


def test_a_workbench_that_raises_is_an_error_for_the_model() -> None:
    class Broken(StaticWorkbench):
        async def call_tool(self, *args: Any, **arguments: Any) -> ToolResult:
            raise OSError("the server is gone")

    async def scenario() -> None:
        workbench = Broken([FunctionTool(hello, "greets")])
        agent = AssistantAgent("a", model(calls("hello")), workbench=[workbench])
        result = await agent.run(task="go")
        [event] = [each for each in result.messages if isinstance(each, ToolCallExecutionEvent)]
        assert event.content[0].is_error
        assert event.content[0].content == "Error: the server is gone"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ("", "hello"),
        ("[1]", "Error: the arguments are not a JSON object: [1]"),
        ("[" * 100_000, "Error: maximum recursion depth exceeded while decoding a JSON array"),
        ("null", "Error: the arguments are not a JSON object: null"),
    ],
)
def test_arguments_must_be_an_object(arguments: str, answer: str) -> None:
    agent = AssistantAgent("a", model(calls("hello", arguments=arguments)), tools=[hello])
    result = asyncio.run(agent.run(task="go"))
    assert result.messages[-1].to_text().startswith(answer)


def test_a_handoff_with_others_warns_and_brings_their_results() -> None:
    agent = AssistantAgent(
        "a",
        model(calls("hello", "transfer_to_b", "transfer_to_c")),
        tools=[hello],
        handoffs=["b", "c"],
    )
    with pytest.warns(UserWarning, match=r"Only the first is executed: \['b', 'c'\]"):
        result = asyncio.run(agent.run(task="go"))
    message = result.messages[-1]
    assert isinstance(message, HandoffMessage)
    assert message.target == "b"
    results = message.context[-1]
    assert isinstance(results, FunctionExecutionResultMessage)
    assert [each.name for each in results.content] == ["hello"]


class City(BaseModel):
    name: str


@pytest.mark.parametrize("tools", [[], [hello]])
def test_an_answer_of_another_shape_is_an_error_that_quotes_it(tools: list[Any]) -> None:
    answers = [calls("hello"), "no city"] if tools else ["no city"]
    agent = AssistantAgent("a", model(*answers), tools=tools, output_content_type=City)
    with pytest.raises(ModelOutputError, match="not JSON of City: .*'no city'"):
        asyncio.run(agent.run(task="go"))


def test_a_reflection_must_be_text() -> None:
    client = model(calls("hello"), calls("hello"))
    agent = AssistantAgent("a", client, tools=[hello], reflect_on_tool_use=True)
    with pytest.raises(ModelOutputError, match="no valid text response"):
        asyncio.run(agent.run(task="go"))


def test_the_text_of_a_structured_answer_follows_the_format_after_tools_too() -> None:
    agent = AssistantAgent(
        "a",
        model(calls("hello"), '{"name": "Rome"}'),
        tools=[hello],
        output_content_type=City,
        output_content_type_format="It is {name}",
    )
    assert asyncio.run(agent.run(task="go")).messages[-1].to_text() == "It is Rome"


async def test_chunks_name_the_message_that_they_belong_to() -> None:
    agent = AssistantAgent("a", model("one two"), model_client_stream=True)
    items = [item async for item in agent.run_stream(task="go", output_task_messages=False)]
    *chunks, message, _ = items
    assert isinstance(message, TextMessage)
    assert {getattr(chunk, "full_message_id", None) for chunk in chunks} == {message.id}


def test_memory_is_refused() -> None:
    memory: Any = ["a memory"]
    with pytest.raises(ValueError, match="has no memory"):
        AssistantAgent("a", model(), memory=memory)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": None}, "agent name None must be a valid Python identifier"),
    ({"model_client": "gpt-4o"}, "model_client must be a client such as .*, not 'gpt-4o'"),
    ({"tools": hello}, r"tools must be a list of tools, such as \[hello\]"),
    ({"model_context": []}, r"model_context must be a context such as .*, not \[\]"),
    ({"system_message": 3}, "system_message must be a text or None, not 3"),
    ({"output_content_type": dict}, "output_content_type must be a pydantic class, not <class"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_wrong_arguments_are_refused(arguments: Mapping[str, Any], message: str) -> None:
    all_arguments: dict[str, Any] = {"name": "a", "model_client": model(), **arguments}
    with pytest.raises(ValueError, match=message):
        AssistantAgent(**all_arguments)


def test_an_agent_is_loaded_as_it_was() -> None:
    agent = AssistantAgent(
        "a",
        model("one"),
        handoffs=["b"],
        model_context=BufferedChatCompletionContext(3),
        description="d",
        system_message=None,
        model_client_stream=True,
        reflect_on_tool_use=True,
        max_tool_iterations=3,
        tool_call_summary_format="{tool_name}",
        metadata={"k": "v"},
    )
    saved = agent.dump_component()
    assert load_component(saved.to_json()).dump_component() == saved


def no_text(call: FunctionCall, result: FunctionExecutionResult) -> str:
    return ""


UNSAVABLE: list[dict[str, Any]] = [
    {"output_content_type": City},
    {"tool_call_summary_formatter": no_text},
    {"tools": [hello]},
]


@pytest.mark.parametrize("arguments", UNSAVABLE)
def test_an_agent_that_could_not_be_loaded_is_not_saved(arguments: Mapping[str, Any]) -> None:
    with pytest.raises(ComponentError, match="cannot be saved"):
        AssistantAgent("a", model(), **arguments).dump_component()


def test_a_state_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="no llm_context"):
        asyncio.run(AssistantAgent("a", model()).load_state({"type": "BaseState"}))
    text: Any = "{}"
    with pytest.raises(ValueError, match=r"must be a dict, not '{}'.*json.loads"):
        asyncio.run(AssistantAgent("a", model()).load_state(text))


async def test_a_loaded_agent_goes_on_with_the_conversation() -> None:
    agent = AssistantAgent("a", model(calls("hello")), tools=[hello])
    result = await agent.run(task="go")
    assert isinstance(result.messages[-1], ToolCallSummaryMessage)
    other = AssistantAgent("a", model("next"), tools=[hello])
    await other.load_state(await agent.save_state())
    assert await context_of(other) == await context_of(agent)
