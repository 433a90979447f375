"""A CodeExecutorAgent without a model runs the blocks of messages."""

from collections.abc import AsyncGenerator
from typing import Any

CODE = "Look:\n```python\nprint('hello')\n```\nand\n```sh\necho shell\n```\n"


async def run(lib: Any) -> AsyncGenerator[Any, None]:
    async with lib.LocalCommandLineCodeExecutor() as executor:
        agent = lib.CodeExecutorAgent("terminal", executor)
        yield [agent.description, agent.NO_CODE_BLOCKS_FOUND_MESSAGE]
        yield agent.DEFAULT_SUPPORTED_LANGUAGES
        yield [kind.__name__ for kind in agent.produced_message_types]
        yield await agent.run(task=CODE)
        for task in (
            "no code",
            "```python\npass\n```",
            "```sh\nexit 3\n```",
            "```python\nraise SystemExit('gone wrong')\n```",
            "```ruby\nputs 1\n```",
            "```PYTHON\nprint(1)\n```",
            "```python\nraise SystemExit(2)\n```\n```python\nprint('not reached')\n```",
        ):
            yield await agent.run(task=task, output_task_messages=False)
        agent = lib.CodeExecutorAgent(
            "listener", executor, sources=["a"], supported_languages=["sh"], description="listens"
        )
        yield agent.description
        messages = [
            lib.TextMessage(content="```sh\necho a\n```\n```python\nprint(1)\n```", source="a"),
            lib.TextMessage(content="```sh\necho b\n```", source="b"),
            lib.StopMessage(content="```sh\necho stop\n```", source="a"),
        ]
        token = lib.CancellationToken()
        yield (await agent.on_messages(messages, token)).chat_message
        yield (await agent.on_messages(messages[1:], token)).chat_message
        yield await agent.extract_code_blocks_from_messages(messages)
        yield await agent.execute_code_block([lib.CodeBlock("echo x", "sh")], token)
