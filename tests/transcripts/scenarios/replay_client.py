"""A scripted model: texts and results, streamed and whole, until nothing is left."""

from collections.abc import AsyncGenerator
from typing import Any

from pydantic import BaseModel


class Answer(BaseModel):
    value: int


async def run(lib: Any) -> AsyncGenerator[Any, None]:
    result = lib.CreateResult(
        finish_reason="function_calls",
        content=[lib.FunctionCall(id="1", name="add", arguments='{"a": 1}')],
        usage=lib.RequestUsage(prompt_tokens=5, completion_tokens=7),
        cached=False,
        thought="hm",
    )
    client = lib.ReplayChatCompletionClient(["one two  three", "", result, '{"value": 1}', "five"])
    messages = [
        lib.SystemMessage(content="Be brief."),
        lib.UserMessage(content="What can you do?", source="user"),
    ]
    yield client.model_info
    yield client.count_tokens(messages)
    async for item in client.create_stream(messages):
        yield item
    yield client.total_usage()
    async for item in client.create_stream(messages):
        yield item
    async for item in client.create_stream(messages):
        yield item
    yield await client.create(messages, json_output=Answer)
    client.set_cached_bool_value(False)
    yield await client.create(messages, tool_choice="none")
    for call in client.create_calls[-2:]:
        yield [call["messages"], call["json_output"] is Answer, call["cancellation_token"]]
    yield client.actual_usage()
    yield client.total_usage()
    yield client.remaining_tokens(messages)
    try:
        await client.create(messages)
    except ValueError as error:
        yield error
    try:
        async for item in client.create_stream(messages):
            yield item
    except ValueError as error:
        yield error
    client.reset()
    yield client.total_usage()
    yield await client.create(messages)
    saved = client.dump_component()
    yield saved.component_type
    yield saved.config["model_info"]
    loaded = lib.ReplayChatCompletionClient.load_component(saved)
    yield [await loaded.create(messages) for _ in range(3)]
    try:
        lib.ReplayChatCompletionClient([], model_info={"vision": True})
    except ValueError as error:
        yield type(error).__name__
