"""An assistant that answers, calls tools, reflects, hands over, streams and is structured."""

import json
from collections.abc import AsyncGenerator
from typing import Any

from pydantic import BaseModel
from scripted import MODEL_INFO


class City(BaseModel):
    name: str
    size: int


async def look_up(city: str) -> str:
    """Look up the weather."""
    if city == "Atlantis":
        raise ValueError("Atlantis is gone")
    return f"sunny in {city}"


def add(a: int, b: int) -> int:
    """Add numbers."""
    return a + b


PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJ"
    "RU5ErkJggg=="
)
PARIS = ("look_up", {"city": "Paris"})
TOOLS = [look_up, add]


class Lab:
    """Creates agents with scripted models, and keeps what the models were asked."""

    def __init__(self, lib: Any) -> None:
        class Recorder(lib.ReplayChatCompletionClient):
            async def create(self, messages: Any, **arguments: Any) -> Any:
                tools = [getattr(tool, "schema", tool) for tool in arguments.get("tools", [])]
                choice = arguments.get("tool_choice", "auto")
                json_output = getattr(arguments.get("json_output"), "__name__", None)
                questions.append([list(messages), tools, choice, json_output])
                return await super().create(messages, **arguments)

        self.lib = lib
        self.model_class = Recorder
        self.questions = questions = list[Any]()
        self.several = self.calls(
            PARIS, ("add", {"a": 1, "b": 2}), ("look_up", {"city": "Atlantis"})
        )

    def result(self, content: Any, thought: str | None = None) -> Any:
        return self.lib.CreateResult(
            finish_reason="stop" if isinstance(content, str) else "function_calls",
            content=content,
            usage=self.lib.RequestUsage(prompt_tokens=2, completion_tokens=3),
            cached=False,
            thought=thought,
        )

    def calls(self, *requests: tuple[str, Any]) -> Any:
        return [
            self.lib.FunctionCall(
                id=str(number),
                name=name,
                arguments=arguments if isinstance(arguments, str) else json.dumps(arguments),
            )
            for number, (name, arguments) in enumerate(requests)
        ]

    def create(self, *answers: Any, **arguments: Any) -> Any:
        model = self.model_class(list(answers), model_info=MODEL_INFO)
        return self.lib.AssistantAgent("ann", model, **arguments)


async def talk(lab: Lab) -> AsyncGenerator[Any, None]:
    agent = lab.create("hello", lab.result("thoughtful", "hm"), "bye")
    yield agent.description
    yield await agent.run(task="hi")
    yield await agent.run(
        task=[
            lab.lib.HandoffMessage(
                content="go",
                source="bob",
                target="ann",
                context=[lab.lib.UserMessage(content="earlier", source="bob")],
            ),
            lab.lib.MultiModalMessage(content=["a text"], source="bob"),
            lab.lib.StructuredMessage[City](content=City(name="x", size=1), source="bob"),
        ]
    )
    yield await agent.save_state()
    await agent.on_reset(lab.lib.CancellationToken())
    yield await agent.run(task="forgotten?")
    picture = lab.lib.MultiModalMessage(
        content=["a picture", lab.lib.Image.from_base64(PIXEL)], source="bob"
    )
    context = lab.lib.HeadAndTailChatCompletionContext(head_size=1, tail_size=1)
    agent = lab.create("one", "two", "three", model_context=context)
    for message in (lab.lib.TextMessage(content="first", source="bob"), picture, picture):
        yield await agent.on_messages([message], lab.lib.CancellationToken())


async def call_tools(lab: Lab) -> AsyncGenerator[Any, None]:
    wrong = lab.calls(("nothing", {}), ("add", "{not json"), ("add", {"a": 1, "b": 3}))
    yield await lab.create(lab.result(lab.several), tools=TOOLS).run(task="call")
    yield await lab.create(lab.result(wrong, "thinking"), tools=TOOLS).run(task="wrong calls")
    yield await lab.create(
        lab.result(lab.calls(PARIS)),
        tools=TOOLS,
        tool_call_summary_format="{tool_name}({arguments}) = {result} {is_error}",
    ).run(task="format")
    yield await lab.create(
        lab.result(lab.several),
        tools=TOOLS,
        tool_call_summary_formatter=lambda call, result: f"{call.name}: {result.is_error}",
    ).run(task="formatter")


async def reflect(lab: Lab) -> AsyncGenerator[Any, None]:
    agent = lab.create(
        lab.result(lab.calls(PARIS)),
        lab.result("it is sunny", "so"),
        "next",
        tools=TOOLS,
        reflect_on_tool_use=True,
        system_message="Be short.",
    )
    yield await agent.run(task="reflect")
    yield await agent.run(task="go on")
    yield await lab.create(
        lab.result(lab.calls(PARIS), "first"),
        lab.result(lab.several, "second"),
        "done",
        tools=TOOLS,
        max_tool_iterations=3,
    ).run(task="iterate")
    yield await lab.create(
        lab.result(lab.calls(PARIS)),
        lab.result(lab.calls(PARIS)),
        tools=TOOLS,
        max_tool_iterations=2,
    ).run(task="iterate too often")
    workbench = lab.lib.StaticWorkbench([lab.lib.FunctionTool(add, "adds")])
    answer = lab.result(lab.calls(("add", {"a": 1, "b": 2})))
    yield await lab.create(answer, workbench=[workbench]).run(task="workbench")


async def hand_over(lab: Lab) -> AsyncGenerator[Any, None]:
    handoffs = ["Bob", lab.lib.Handoff(target="eve", description="d", name="to_eve", message="m")]
    for answer in (
        lab.result(lab.calls(("transfer_to_bob", {})), "why"),
        lab.result(lab.calls(("to_eve", {}))),
        lab.result(lab.calls(PARIS, ("to_eve", {}), ("transfer_to_bob", {})), "why"),
    ):
        agent = lab.create(answer, "after", tools=TOOLS, handoffs=handoffs)
        yield await agent.run(task="hand over")
        yield await agent.run(task="go on")


async def structure(lab: Lab) -> AsyncGenerator[Any, None]:
    agent = lab.create(
        '{"name": "Rome", "size": 3}',
        output_content_type=City,
        output_content_type_format="{name} has {size}",
        system_message=None,
    )
    done = await agent.run(task="structured")
    yield done.messages[-1].content
    yield done.messages[-1].to_text()
    agent = lab.create(
        lab.result(lab.calls(PARIS)),
        '{"name": "Rome", "size": 3}',
        tools=TOOLS,
        output_content_type=City,
    )
    done = await agent.run(task="structured after a tool")
    yield done.messages[-1].content
    try:
        await lab.create("nonsense", output_content_type=City).run(task="x")
    except ValueError:
        yield "not a city"


async def stream(lab: Lab) -> AsyncGenerator[Any, None]:
    agent = lab.create("one two", tools=TOOLS, model_client_stream=True)
    async for item in agent.run_stream(task="stream"):
        yield item
    agent = lab.create(
        lab.result(lab.calls(PARIS)),
        "three four",
        tools=TOOLS,
        model_client_stream=True,
        reflect_on_tool_use=True,
    )
    async for item in agent.on_messages_stream(
        [lab.lib.TextMessage(content="x", source="user")], lab.lib.CancellationToken()
    ):
        yield item


async def refuse(lab: Lab) -> AsyncGenerator[Any, None]:
    for arguments in (
        {"tools": [add, add]},
        {"tools": [3]},
        {"handoffs": ["a", "a"]},
        {"handoffs": [3]},
        {"tools": [add], "handoffs": [lab.lib.Handoff(target="x", name="add")]},
        {"tools": [add], "workbench": lab.lib.StaticWorkbench([])},
        {"max_tool_iterations": 0},
    ):
        try:
            lab.create(**arguments)
        except ValueError as error:
            yield error
    for arguments in ({"tools": [add]}, {"handoffs": ["a"]}):
        try:
            lab.lib.AssistantAgent("a", lab.lib.ReplayChatCompletionClient([]), **arguments)
        except ValueError as error:
            yield error
    yield lab.lib.Handoff(target="Bob")


async def run(lib: Any) -> AsyncGenerator[Any, None]:
    lab = Lab(lib)
    for part in (talk, call_tools, reflect, hand_over, structure):
        async for item in part(lab):
            yield item
    for question in lab.questions:
        yield question
    for part in (stream, refuse):
        async for item in part(lab):
            yield item
