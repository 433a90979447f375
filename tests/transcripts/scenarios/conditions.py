"""Each termination condition, alone and combined, asked, reached and reset."""

from collections.abc import AsyncGenerator, Callable
from typing import Any


def conditions(lib: Any) -> dict[str, Callable[[], Any]]:
    return {
        "stop": lib.StopMessageTermination,
        "max": lambda: lib.MaxMessageTermination(3),
        "max with events": lambda: lib.MaxMessageTermination(3, include_agent_event=True),
        "mention": lambda: lib.TextMentionTermination("ABC"),
        "mention by": lambda: lib.TextMentionTermination("ABC", sources=["bob"]),
        "text": lib.TextMessageTermination,
        "text by": lambda: lib.TextMessageTermination("bob"),
        "total": lambda: lib.TokenUsageTermination(max_total_token=8),
        "prompt": lambda: lib.TokenUsageTermination(max_prompt_token=4),
        "completion": lambda: lib.TokenUsageTermination(max_completion_token=6),
        "handoff": lambda: lib.HandoffTermination("bob"),
        "timeout": lambda: lib.TimeoutTermination(0),
        "long timeout": lambda: lib.TimeoutTermination(1000),
        "source": lambda: lib.SourceMatchTermination(["bob"]),
        "call": lambda: lib.FunctionCallTermination("look"),
        "function": lambda: lib.FunctionalTermination(lambda messages: len(messages) == 2),
        "external": lib.ExternalTermination,
        "and": lambda: lib.MaxMessageTermination(2) & lib.TextMentionTermination("ABC"),
        "or": lambda: lib.MaxMessageTermination(2) | lib.TextMentionTermination("ABC"),
        "and or": lambda: (
            lib.MaxMessageTermination(2) & lib.TextMentionTermination("ABC")
            | lib.StopMessageTermination()
        ),
    }


async def run(lib: Any) -> AsyncGenerator[Any, None]:
    usage = lib.RequestUsage(prompt_tokens=2, completion_tokens=3)
    result = lib.FunctionExecutionResult(content="", name="look", call_id="1")
    turns = [
        [lib.TextMessage(content="an ABC", source="ann", models_usage=usage)],
        [
            lib.ToolCallExecutionEvent(content=[result], source="ann"),
            lib.TextMessage(content="x", source="bob", models_usage=usage),
        ],
        [lib.ThoughtEvent(content="ABC", source="bob")],
        [lib.HandoffMessage(content="go", source="ann", target="bob")],
        [lib.StopMessage(content="ABC", source="bob")],
    ]
    for name, create in conditions(lib).items():
        yield name
        condition = create()
        for _ in range(2):
            for turn in turns:
                if not condition.terminated:
                    yield await condition(turn)
            yield condition.terminated
            try:
                if condition.terminated:
                    await condition(turns[0])
            except BaseException:
                yield "has already been reached"
            await condition.reset()
            yield condition.terminated
    external = lib.ExternalTermination()
    external.set()
    yield await external([])
    try:
        lib.TokenUsageTermination()
    except ValueError as error:
        yield error
