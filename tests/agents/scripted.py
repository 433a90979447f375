"""What tests of agents that run code share: a sandbox, a scripted model, and one task."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from cellblock import CancellationToken, SandboxCommandLineCodeExecutor
from cellblock.agents import AgentMessage, BaseChatAgent, CodeOutputEvent, TaskResult
from cellblock.models import CreateResult, ModelInfo, ReplayChatCompletionClient


@pytest.fixture(scope="module")
def executor() -> Iterator[SandboxCommandLineCodeExecutor]:
    """Yield a sandbox for all tests of a module."""
    executor = SandboxCommandLineCodeExecutor()
    yield executor
    asyncio.run(executor.stop())


def model(
    *answers: str | CreateResult, vision: bool = False, function_calling: bool = False
) -> ReplayChatCompletionClient:
    """Return a model with these answers, which claims to support structured output."""
    info = ModelInfo(
        vision=vision,
        function_calling=function_calling,
        json_output=True,
        family="unknown",
        structured_output=True,
    )
    return ReplayChatCompletionClient(answers, info)


def run_agent(agent: BaseChatAgent, task: Any, token: CancellationToken | None = None) -> list[Any]:
    """Return what the agent does for `task`, without live output and the result."""

    async def collect() -> list[AgentMessage | TaskResult]:
        stream = agent.run_stream(task=task, cancellation_token=token, output_task_messages=False)
        return [item async for item in stream]

    items = asyncio.run(collect())
    return [item for item in items if not isinstance(item, CodeOutputEvent | TaskResult)]
