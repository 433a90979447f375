"""A CodeExecutorAgent with a model: success, no code, thoughts, pieces, and what the model sees."""

from collections.abc import AsyncGenerator
from typing import Any

from scripted import shown

CODE = "Here:\n```python\nprint('hello')\n```\n"


async def run(lib: Any) -> AsyncGenerator[Any, None]:
    async with lib.LocalCommandLineCodeExecutor() as executor:
        client = lib.ReplayChatCompletionClient([CODE, "It says hello."])
        agent = lib.CodeExecutorAgent(
            "coder", executor, model_client=client, system_message="Write code."
        )
        async for item in agent.run_stream(task="Say hello."):
            if type(item).__name__ not in ("CodeOutputEvent", "TaskResult"):
                yield item
        for call in client.create_calls:
            yield [*call["messages"], call["tools"], call["json_output"]]
        yield await agent.model_context.get_messages()

        client = lib.ReplayChatCompletionClient(["No code here.", CODE, "Done now."])
        agent = lib.CodeExecutorAgent(
            "coder", executor, model_client=client, model_client_stream=True, system_message=None
        )
        async for item in agent.run_stream(task="Say something."):
            if text := shown(item):
                yield text
        handoff = lib.HandoffMessage(
            content="Go on.",
            source="boss",
            target="coder",
            context=[lib.UserMessage(content="earlier", source="user")],
        )
        async for item in agent.run_stream(task=handoff):
            if text := shown(item):
                yield text
        yield await agent.model_context.get_messages()

        usage = lib.RequestUsage(prompt_tokens=3, completion_tokens=4)
        answers = [
            lib.CreateResult(
                finish_reason="stop", content=text, usage=usage, cached=False, thought=thought
            )
            for text, thought in ((CODE, "think"), ("Said it.", "think again"))
        ]
        client = lib.ReplayChatCompletionClient(answers)
        agent = lib.CodeExecutorAgent(
            "coder", executor, model_client=client, system_message="Write code."
        )
        async for item in agent.run_stream(task="Say hello."):
            if text := shown(item):
                yield text
        yield await agent.model_context.get_messages()
        agent = lib.CodeExecutorAgent("coder", executor, model_client=client)
        client.reset()
        yield [shown(item) for item in (await agent.run(task="Say hello.")).messages]
