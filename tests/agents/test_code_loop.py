"""A CodeExecutorAgent with `max_turns`: the model goes on until it answers without code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from cellblock import CancellationToken, CodeBlock, SandboxCommandLineCodeExecutor
from cellblock.agents import (
    ApprovalRequest,
    ApprovalResponse,
    CodeExecutionEvent,
    CodeExecutorAgent,
    CodeGenerationEvent,
)
from cellblock.events import Event
from cellblock.models import CreateResult, FinishReasons, RequestUsage
from tests.agents.scripted import executor, model, run_agent

__all__ = ["executor"]


def python(code: str) -> str:
    return f"```python\n{code}\n```"


def agent_of(executor: Any, *answers: str | CreateResult, **settings: Any) -> CodeExecutorAgent:
    """Return an agent whose model answers so."""
    merged: dict[str, Any] = {"model_client": model(*answers), "max_turns": 20, **settings}
    return CodeExecutorAgent("coder", executor, **merged)


def answer_with(finish_reason: FinishReasons, prompt_tokens: int) -> CreateResult:
    """Return an answer with code."""
    return CreateResult(
        content=python("print(1)"),
        finish_reason=finish_reason,
        usage=RequestUsage(prompt_tokens, 1),
        cached=False,
    )


def approve(request: ApprovalRequest) -> ApprovalResponse:
    return ApprovalResponse(approved=True, reason="")


def outputs(events: list[Any]) -> list[str]:
    return [event.result.output for event in events if isinstance(event, CodeExecutionEvent)]


def test_the_model_goes_on_until_it_answers_without_code(executor: Any) -> None:
    agent = agent_of(executor, python("print(1)"), python("1 / 0"), python("print(3)"), "Done.")
    events = run_agent(agent, "Count.")
    first, second, third = outputs(events)
    assert (first, third) == ("1\n", "3\n")
    assert "ZeroDivisionError" in second
    assert [event.retry_attempt for event in events if isinstance(event, CodeGenerationEvent)] == [
        0,
        1,
        2,
    ]
    assert events[-1].to_text() == "Done."
    assert "stop_reason" not in events[-1].metadata


@pytest.mark.parametrize(
    ("answers", "settings", "reason", "runs"),
    [
        ([python("print(1)"), python("print(2)")], {"max_turns": 2}, "answered 2 times", 2),
        ([python("1 / 0")] * 3, {}, "The model repeats code that fails.", 3),
        ([python("print(1)")] * 3, {}, "The model repeats code whose output stays the same.", 3),
        (["```rust\n1\n```"] * 2, {}, "The model wrote only code that cannot run here.", 0),
        ([python("print(1)"), "<think>Well.</think>"], {}, "The model's answer is empty.", 1),
    ],
)
def test_a_run_that_makes_no_sense_any_more_ends_and_says_why(
    executor: Any, answers: list[str], settings: Any, reason: str, runs: int
) -> None:
    events = run_agent(agent_of(executor, *answers, **settings), "Go.")
    assert reason in events[-1].metadata["stop_reason"]
    assert events[-1].metadata["stop_reason"] in [event.to_text() for event in events[:-1]]
    assert len(outputs(events)) == runs


def test_the_model_is_told_once_that_none_of_its_code_ran(executor: Any) -> None:
    agent = agent_of(executor, "```rust\nfn main() {}\n```", "Then not.")
    assert run_agent(agent, "Go.")[-1].to_text() == "Then not."
    history = asyncio.run(agent.model_context.get_messages())
    assert "Blocks in rust were not run" in str(history[2].content)


def test_data_that_names_a_file_is_saved(executor: Any) -> None:
    data = "```csv\n# filename: loop.csv\na,b\n```\n"
    agent = agent_of(executor, data + python("print(open('loop.csv').read())"), "Done.")
    assert "a,b" in outputs(run_agent(agent, "Go."))[0]


def test_code_that_is_cut_off_does_not_run(executor: Any) -> None:
    half = answer_with("length", 1)
    events = run_agent(agent_of(executor, half), "Go.")
    assert outputs(events) == []
    assert "cut off" in events[-1].metadata["stop_reason"]


def test_used_up_tokens_end_the_run_with_the_last_output(executor: Any) -> None:
    spent = answer_with("stop", 100)
    events = run_agent(agent_of(executor, spent, "Never.", max_tokens=50), "Go.")
    assert events[-1].to_text() == "1\n"
    assert "101 tokens" in events[-1].metadata["stop_reason"]


@pytest.mark.parametrize(
    "settings", [{"max_turns": 0}, {"max_retries_on_error": 1}, {"model_client": None}]
)
def test_settings_that_make_no_sense_are_refused(executor: Any, settings: Any) -> None:
    with pytest.raises(ValueError, match="max_turns"):
        agent_of(executor, **{"max_turns": 3, **settings})


class Recorder:
    """Stands around an executor, and sees what happens."""

    is_live = False

    def __init__(self, executor: SandboxCommandLineCodeExecutor) -> None:
        self._executor = executor
        self.seen: list[Event] = []

    async def execute_code_blocks(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> Any:
        raise AssertionError("the agent streams")

    async def execute_stream(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Event, None]:
        async for event in self._executor.execute_stream(code_blocks, cancellation_token):
            self.seen.append(event)
            yield event


def test_an_object_around_an_executor_sees_its_events(executor: Any) -> None:
    recorder = Recorder(executor)
    agent = agent_of(recorder, python("print(1)"), "Done.", approval_func=approve)
    assert outputs(run_agent(agent, "Go.")) == ["1\n"]
    assert [type(event).__name__ for event in recorder.seen] == ["Started", "Output", "Ended"]
