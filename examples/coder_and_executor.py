"""A coder and an executor solve a task in a group chat.

python examples/coder_and_executor.py [--docker [IMAGE]] [--model NAME]
"""

from __future__ import annotations

import asyncio

from settings import Settings, read_settings

from cellblock.agents import AssistantAgent, CodeExecutorAgent
from cellblock.teams import (
    Console,
    MaxMessageTermination,
    RoundRobinGroupChat,
    TextMentionTermination,
)

TASK = (
    "How many prime numbers are there below 10000, and which two neighbours among them are the "
    "furthest apart?"
)
CODER = (
    "You solve tasks with Python code. Write one complete program in a ```python block and print "
    "what you want to know; another agent runs it and shows you the output. "
    "When you know the answer, say it in one sentence, and end with TERMINATE."
)


async def main(settings: Settings) -> None:
    model = settings.model_client()
    async with settings.executor() as executor:
        coder = AssistantAgent("coder", model, system_message=CODER)
        runner = CodeExecutorAgent("executor", executor)
        stop = TextMentionTermination("TERMINATE", sources=["coder"]) | MaxMessageTermination(10)
        team = RoundRobinGroupChat([coder, runner], termination_condition=stop)
        result = await Console(team.run_stream(task=TASK))
    print(f"\nStopped: {result.stop_reason}")
    await model.close()


if __name__ == "__main__":
    asyncio.run(main(read_settings("coder_and_executor", __doc__)))
