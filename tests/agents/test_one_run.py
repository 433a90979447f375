"""An agent with a conversation runs once at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cellblock.agents import AssistantAgent, BaseChatAgent, CodeExecutorAgent, TextMessage
from cellblock.errors import AgentError
from cellblock.models import ChatCompletionClient, OpenAIChatCompletionClient
from tests.agents.scripted import executor, model
from tests.models.http_service import HTTPService, text_reply

__all__ = ["executor"]


def make_agent(kind: str, client: ChatCompletionClient, executor: Any) -> BaseChatAgent:
    if kind == "assistant":
        return AssistantAgent("agent", client)
    return CodeExecutorAgent("agent", executor, model_client=client)


@pytest.mark.parametrize("kind", ["assistant", "coder"])
def test_a_second_run_at_once_is_refused_and_changes_nothing(executor: Any, kind: str) -> None:
    async def run() -> list[Any]:
        async with HTTPService(text_reply("One."), text_reply("Two.")) as service:
            client = OpenAIChatCompletionClient(
                model="gpt-4o", api_key="none", base_url=f"{service.url}/v1"
            )
            agent = make_agent(kind, client, executor)
            tasks = (agent.run(task="first"), agent.run(task="second"))
            both = await asyncio.gather(*tasks, return_exceptions=True)
            third = await agent.run(task="third")
            await client.close()
            texts = [message["content"] for message in service.requests[-1].body["messages"]]
            return [*both, third, texts]

    first, second, third, texts = asyncio.run(run())
    assert first.messages[-1].content == "One."
    assert isinstance(second, AgentError)
    assert "agent is running already" in str(second)
    assert third.messages[-1].content == "Two."
    assert texts[1:] == ["first", "One.", "third"]


@pytest.mark.parametrize("kind", ["assistant", "coder"])
def test_a_stream_that_was_left_does_not_block_the_agent(executor: Any, kind: str) -> None:
    async def run() -> Any:
        agent = make_agent(kind, model("One.", "Two."), executor)
        async for message in agent.run_stream(task="first"):
            if isinstance(message, TextMessage) and message.source == "agent":
                break
        return await agent.run(task="second")

    assert asyncio.run(run()).messages[-1].content == "Two."
