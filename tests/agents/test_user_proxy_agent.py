"""UserProxyAgent: cancellation while it waits, threads, saving."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
from typing import Any

import pytest

from cellblock import CancellationToken
from cellblock.agents import TextMessage, UserProxyAgent
from cellblock.components import load_component
from cellblock.errors import AgentError, ComponentError

MESSAGE = TextMessage(content="hello?", source="a")


@pytest.mark.parametrize("by_token", [True, False])
@pytest.mark.parametrize("is_async", [True, False])
def test_the_wait_for_the_user_can_be_cancelled(by_token: bool, is_async: bool) -> None:
    asked, answered = threading.Event(), threading.Event()

    def answer(prompt: str) -> str:
        asked.set()
        answered.wait()
        return "too late"

    async def answer_later(prompt: str, token: CancellationToken | None) -> str:
        asked.set()
        await asyncio.Event().wait()
        return "too late"

    async def scenario() -> None:
        user = UserProxyAgent("u", input_func=answer_later if is_async else answer)
        token = CancellationToken()
        task = asyncio.create_task(user.on_messages([MESSAGE], token))
        while not asked.is_set():
            await asyncio.to_thread(asked.wait)
        if by_token:
            token.cancel()
        else:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    try:
        asyncio.run(scenario())
    finally:
        answered.set()


def test_a_function_in_a_thread_knows_its_request() -> None:
    requests: list[str] = []

    def answer(prompt: str) -> str:
        requests.append(UserProxyAgent.InputRequestContext.request_id())
        return threading.current_thread().name

    async def scenario() -> None:
        user = UserProxyAgent("u", input_func=answer)
        event, message, _ = [item async for item in user.run_stream()]
        assert [getattr(event, "request_id", "")] == requests
        assert getattr(message, "content", "") != threading.current_thread().name

    asyncio.run(scenario())


def test_an_object_with_an_async_call_is_awaited() -> None:
    class Answers:
        async def __call__(self, prompt: str, token: CancellationToken | None) -> str:
            return f"{prompt}{token is not None}"

    user = UserProxyAgent("u", input_func=Answers())
    result = asyncio.run(user.run())
    assert result.messages[-1].to_text() == "Enter your response: True"


def test_an_answer_that_is_no_text_is_an_error() -> None:
    answer: Any = len
    with pytest.raises(AgentError, match="input_func must return a text, not 21"):
        asyncio.run(UserProxyAgent("u", input_func=lambda prompt: answer("x" * 21)).run())


def test_a_closed_terminal_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(AgentError, match="Failed to get user input: EOF"):
        asyncio.run(UserProxyAgent("u").run())


def test_an_agent_that_reads_the_terminal_is_saved_and_one_with_a_function_is_not() -> None:
    saved = UserProxyAgent("u", description="d").dump_component()
    assert load_component(saved).dump_component() == saved
    answer: Any = str
    with pytest.raises(ComponentError, match="cannot be saved"):
        UserProxyAgent("u", input_func=answer).dump_component()
    config = {**saved.to_dict(), "config": {"name": "u", "input_func": "builtins.input"}}
    with pytest.raises(ComponentError, match="cannot be loaded"):
        load_component(config)
