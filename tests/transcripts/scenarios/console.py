"""What the console prints where there is no terminal."""

import contextlib
import io
import re
from collections.abc import AsyncGenerator
from typing import Any

from scripted import MODEL_INFO


async def printed(lib: Any, stream: Any, **arguments: Any) -> list[str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        result = await lib.Console(stream, **arguments)
    lines = re.sub(r"Duration: .*", "Duration", out.getvalue()).split("\n")
    return [type(result).__name__, *lines]


def look_up(city: str) -> str:
    """Look up the weather."""
    return f"sunny in {city}"


async def run(lib: Any) -> AsyncGenerator[Any, None]:
    usage = lib.RequestUsage(prompt_tokens=2, completion_tokens=3)

    def agent(*answers: Any, **arguments: Any) -> Any:
        model = lib.ReplayChatCompletionClient(list(answers), model_info=MODEL_INFO)
        return lib.AssistantAgent("ann", model, tools=[look_up], **arguments)

    def call(thought: str | None = None) -> Any:
        return lib.CreateResult(
            finish_reason="function_calls",
            content=[lib.FunctionCall(id="1", name="look_up", arguments='{"city": "Rome"}')],
            usage=usage,
            cached=False,
            thought=thought,
        )

    message = [lib.TextMessage(content="x", source="user")]
    token = lib.CancellationToken()
    yield await printed(lib, agent("one\ntwo", "three").run_stream(task="count"))
    yield await printed(lib, agent(call("so")).run_stream(task="call"), output_stats=True)
    yield await printed(lib, agent("one two", model_client_stream=True).run_stream(task="stream"))
    yield await printed(
        lib,
        agent(call(), "one two", model_client_stream=True, reflect_on_tool_use=True).run_stream(
            task="stream"
        ),
        output_stats=True,
    )
    yield await printed(lib, agent("one").on_messages_stream(message, token), output_stats=True)
    yield await printed(lib, agent(call()).on_messages_stream(message, token))

    manager = lib.UserInputManager(lambda prompt: f"<{prompt}>")
    user = lib.UserProxyAgent("user", input_func=lambda prompt: "hello")
    team = lib.RoundRobinGroupChat([agent("one"), user], max_turns=2, emit_team_events=True)
    yield await printed(lib, team.run_stream(task="talk"), output_stats=True)
    yield type(manager).__name__
    yield await printed(
        lib,
        lib.RoundRobinGroupChat([user], max_turns=1).run_stream(
            task=lib.MultiModalMessage(content=["a", "b"], source="user")
        ),
    )

    async def nothing() -> AsyncGenerator[Any, None]:
        yield message[0]

    try:
        await printed(lib, nothing())
    except ValueError as error:
        yield error
