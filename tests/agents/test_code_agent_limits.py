"""A run of CodeExecutorAgent ends: by its limits, by a model that repeats itself, by a token."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from cellblock import (
    CancellationToken,
    CodeResult,
    LocalCommandLineCodeExecutor,
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
)
from cellblock.agents import (
    AgentMessage,
    ApprovalRequest,
    ApprovalResponse,
    ApprovalRules,
    CodeApprovalEvent,
    CodeExecutionEvent,
    CodeExecutorAgent,
    CodeGenerationEvent,
    CodeOutputEvent,
    TextMessage,
    ThoughtEvent,
)
from cellblock.models import (
    CreateResult,
    ModelInfo,
    OpenAIChatCompletionClient,
    ReplayChatCompletionClient,
)
from cellblock.tools import PythonCodeExecutionTool
from tests.agents.scripted import executor, model, run_agent
from tests.models.http_service import HTTPService, json_reply, text_reply

__all__ = ["executor"]

CODE = "```python\nprint('hello')\n```"
BAD = "```python\nraise SystemExit('bad')  # {}\n```"
# One write, so that the first output event has the whole line.
FOREVER = "```python\nimport os\nos.write(1, b'begun\\n')\nwhile True: pass\n```"
YES = json.dumps({"reason": "Try.", "retry": True})


def check_stopped(items: list[Any], reason: str, answer: str) -> None:
    thought, last = items[-2:]
    assert isinstance(thought, ThoughtEvent)
    assert (thought.content, last.content) == (reason, answer)
    assert last.metadata == {"stop_reason": reason}


# a model that makes no progress


def test_the_same_code_again_is_not_run(executor: Any) -> None:
    client = model(BAD.format(1), YES, BAD.format(1), "I give up.")
    agent = CodeExecutorAgent("a", executor, model_client=client, max_retries_on_error=9)
    items = run_agent(agent, "Go.")
    assert sum(isinstance(item, CodeExecutionEvent) for item in items) == 1
    check_stopped(items, "The model wrote the same code again. It was not run.", "I give up.")


def test_the_same_error_again_ends_the_attempts(executor: Any) -> None:
    first, second = (f"```python\n# {number}\n1 / 0\n```" for number in range(2))
    client = model(first, YES, second, "I give up.")
    agent = CodeExecutorAgent("a", executor, model_client=client, max_retries_on_error=9)
    items = run_agent(agent, "Go.")
    assert sum(isinstance(item, CodeExecutionEvent) for item in items) == 2
    check_stopped(items, "The code failed with the same error again.", "I give up.")


def test_a_retry_names_the_error_once(executor: Any) -> None:
    client = model(BAD.format(1), YES, "I give up.")
    agent = CodeExecutorAgent("a", executor, model_client=client, max_retries_on_error=1)
    run_agent(agent, "Go.")
    shown = [str(message.content) for message in client.create_calls[1]["messages"]]
    assert [text.count("exited with an error") for text in shown] == [0, 0, 1, 0]
    assert shown[-1].startswith("The most recent code execution resulted in an error.\n")


def test_a_model_is_told_that_its_code_has_no_network(executor: Any) -> None:
    code = "import urllib.request\nurllib.request.urlopen('http://example.org')"
    client = model(f"```python\n{code}\n```", "I see.")
    run_agent(CodeExecutorAgent("a", executor, model_client=client), "Go.")
    told = str(client.create_calls[-1]["messages"][-1].content)
    assert "name resolution" in told
    assert told.endswith("Blocks have no network here: nothing can be downloaded or installed.")
    call = PythonCodeExecutionTool(executor).run_json({"code": code}, CancellationToken())
    assert "Blocks have no network here" in asyncio.run(call).output


@pytest.mark.parametrize(
    "decision", ["", "Yes, please!", "{}", '{"retry": "perhaps", "reason": ""}', "[true]", "null"]
)
def test_nonsense_instead_of_a_decision_ends_the_attempts(executor: Any, decision: str) -> None:
    client = model(BAD.format(1), decision, "I give up.")
    agent = CodeExecutorAgent("a", executor, model_client=client, max_retries_on_error=9)
    check_stopped(
        run_agent(agent, "Go."),
        "The model did not say in the requested form whether to try again.",
        "I give up.",
    )


@pytest.mark.parametrize("answers", [[""], [" \n"], [CODE, ""]])
def test_an_empty_answer_is_told(executor: Any, answers: list[str]) -> None:
    agent = CodeExecutorAgent("a", executor, model_client=model(*answers))
    check_stopped(run_agent(agent, "Go."), "The model's answer is empty.", answers[-1])


# models and servers without structured output


@pytest.mark.parametrize("decision", [YES, f"```json\n{YES}\n```"])
def test_a_model_without_structured_output_can_correct_its_code(
    executor: Any, decision: str
) -> None:
    info: ModelInfo = {**model().model_info, "json_output": False, "structured_output": False}
    client = ReplayChatCompletionClient([BAD.format(1), decision, CODE, "Done."], info)
    agent = CodeExecutorAgent("a", executor, model_client=client, max_retries_on_error=1)
    assert run_agent(agent, "Go.")[-1].content == "Done."
    prompt = client.create_calls[1]["messages"][-1].content
    assert "Answer with one JSON object of this schema" in prompt


def test_a_server_that_refuses_response_format_is_asked_without_it(executor: Any) -> None:
    async def run() -> tuple[Any, list[Any]]:
        refused = json_reply({"error": {"message": "response_format is not supported"}}, 400)
        answers = [
            text_reply(BAD.format(1)),
            refused,
            text_reply(YES),
            text_reply(CODE),
            text_reply("Done."),
        ]
        async with HTTPService(*answers) as service:
            client = OpenAIChatCompletionClient(
                model="gpt-4o", api_key="none", base_url=f"{service.url}/v1", max_retries=0
            )
            agent = CodeExecutorAgent("a", executor, model_client=client, max_retries_on_error=1)
            result = await agent.run(task="Go.")
            await client.close()
            return result.messages[-1], [request.body for request in service.requests]

    last, bodies = asyncio.run(run())
    assert last.to_text() == "Done."
    assert ["response_format" in body for body in bodies] == [False, True, False, False, False]


# tokens and seconds


@pytest.mark.parametrize(("limit", "calls"), [(1, 1), (45, 1), (120, 2), (10_000, 4)])
def test_after_too_many_tokens_the_model_is_not_asked_again(
    executor: Any, limit: int, calls: int
) -> None:
    client = model(BAD.format(1), YES, CODE, "Done.")
    agent = CodeExecutorAgent(
        "a", executor, model_client=client, max_retries_on_error=1, max_tokens=limit
    )
    items = run_agent(agent, "Go.")
    assert len(client.create_calls) == calls
    if calls == 4:
        assert items[-1].content == "Done."
        assert items[-1].metadata == {}
    else:
        reason = items[-1].metadata["stop_reason"]
        assert f"the limit is {limit} (max_tokens)" in reason
        check_stopped(
            items,
            reason,
            "The script ran, then exited with an error (POSIX exit code: 1)\n"
            "Its output was:\nbad\n",
        )


@pytest.mark.parametrize("has_model", [True, False])
def test_the_time_limit_ends_the_code_and_keeps_its_output(executor: Any, has_model: bool) -> None:
    client = model(FOREVER) if has_model else None
    agent = CodeExecutorAgent("a", executor, model_client=client, max_seconds=2)
    items = run_agent(agent, FOREVER)
    execution = items[-3]
    assert isinstance(execution, CodeExecutionEvent)
    assert execution.result.exit_code == 125
    assert "begun\n" in execution.result.output
    check_stopped(
        items, "The time limit of 2 seconds (max_seconds) is over.", execution.result.output
    )
    assert run_agent(CodeExecutorAgent("b", executor), CODE)[-1].content == "hello\n"


class StuckModel(ReplayChatCompletionClient):
    """A model that never gives the answer after its scripted ones."""

    def __init__(self, *answers: str, on_stuck: Any = None) -> None:
        super().__init__([*answers, "never given"], model().model_info)
        self._on_stuck = on_stuck

    async def create(self, *arguments: Any, **settings: Any) -> CreateResult:
        if len(self.create_calls) == len(self.chat_completions) - 1:
            if self._on_stuck is not None:
                self._on_stuck()
            await asyncio.Event().wait()
        return await super().create(*arguments, **settings)

    async def create_stream(
        self, *arguments: Any, **settings: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        yield "I "
        yield await self.create(*arguments, **settings)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("answers", [[], [CODE], [BAD, YES]])
def test_the_time_limit_ends_the_wait_for_a_model(
    executor: Any, stream: bool, answers: list[str]
) -> None:
    agent = CodeExecutorAgent(
        "a",
        executor,
        model_client=StuckModel(*answers),
        model_client_stream=stream,
        max_retries_on_error=1,
        max_seconds=1,
    )
    items = run_agent(agent, "Go.")
    reason = "The time limit of 1 seconds (max_seconds) is over."
    results = [item.to_text() for item in items if isinstance(item, CodeExecutionEvent)]
    check_stopped(items, reason, results[-1] if results else reason)


# tokens that are cancelled, tasks that are cancelled, streams that are closed


async def run_until_cancelled(
    agent: CodeExecutorAgent,
    task: str,
    token: CancellationToken,
    cancel_at: type[AgentMessage] | None = None,
) -> list[Any]:
    """Return what the agent does until it raises `CancelledError`.

    Cancel `token` when an item of type `cancel_at` comes.
    """
    seen: list[Any] = []

    async def collect() -> None:
        async for item in agent.run_stream(task=task, cancellation_token=token):
            seen.append(item)
            if cancel_at is not None and isinstance(item, cancel_at):
                token.cancel()

    with pytest.raises(asyncio.CancelledError):
        await collect()
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0
    return seen


async def check_usable(executor: Any) -> None:
    agent = CodeExecutorAgent("b", executor, approval_func=ApprovalRules())
    assert (await agent.run(task=CODE)).messages[-1].to_text() == "hello\n"


@pytest.mark.parametrize("has_model", [True, False])
def test_a_token_that_is_cancelled_before_runs_nothing(executor: Any, has_model: bool) -> None:
    client = model("unused")
    agent = CodeExecutorAgent("a", executor, model_client=client if has_model else None)
    token = CancellationToken()
    token.cancel()
    seen = asyncio.run(run_until_cancelled(agent, CODE, token))
    assert [type(item) for item in seen] == [TextMessage]
    assert client.create_calls == []


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("answers", [[], [BAD], [BAD, YES], [CODE]])
def test_a_token_ends_the_wait_for_a_model(executor: Any, stream: bool, answers: list[str]) -> None:
    token = CancellationToken()
    client = StuckModel(*answers, on_stuck=token.cancel)
    agent = CodeExecutorAgent(
        "a", executor, model_client=client, model_client_stream=stream, max_retries_on_error=1
    )

    async def run() -> list[str]:
        await run_until_cancelled(agent, "Go.", token)
        await check_usable(executor)
        return [type(message).__name__ for message in await agent.model_context.get_messages()]

    # The task, the code and its result are there. So is the correction, if there is one.
    expected = ["UserMessage", "AssistantMessage", "UserMessage", "UserMessage"]
    count = {0: 1, 1: 3, 2: 4}[len(answers)]
    assert asyncio.run(run()) == expected[:count]


def test_a_token_ends_the_wait_for_an_approval(executor: Any) -> None:
    token = CancellationToken()

    async def decide(request: ApprovalRequest) -> ApprovalResponse:
        token.cancel()
        await asyncio.Event().wait()
        raise AssertionError

    agent = CodeExecutorAgent("a", executor, approval_func=decide)
    seen = asyncio.run(run_until_cancelled(agent, CODE, token))
    assert [type(item) for item in seen] == [TextMessage]


@pytest.mark.parametrize("has_model", [True, False])
@pytest.mark.parametrize("is_live", [True, False])
def test_a_token_ends_the_code_and_its_output_is_kept(has_model: bool, is_live: bool) -> None:
    async def run() -> tuple[list[Any], list[Any]]:
        kind = SandboxSessionCodeExecutor if is_live else SandboxCommandLineCodeExecutor
        async with kind() as executor:
            client = model(FOREVER) if has_model else None
            agent = CodeExecutorAgent("a", executor, model_client=client)
            seen = await run_until_cancelled(agent, FOREVER, CancellationToken(), CodeOutputEvent)
            await check_usable(executor)
            return seen, await agent.model_context.get_messages()

    seen, context = asyncio.run(run())
    event = seen[-1]
    assert isinstance(event, CodeExecutionEvent)
    assert event.result.exit_code == 125
    assert event.to_text().endswith("begun\n\nCancelled: Code execution was cancelled.")
    if has_model:
        assert context[-1].content == event.to_text()


class StuckExecutor:
    """Somebody else's executor, which never ends and does not look at the token."""

    def __init__(self, token: CancellationToken) -> None:
        self._token = token

    async def execute_code_blocks(self, code_blocks: Any, cancellation_token: Any) -> CodeResult:
        self._token.cancel()
        await asyncio.Event().wait()
        raise AssertionError


def test_a_token_interrupts_somebody_elses_executor() -> None:
    token = CancellationToken()
    agent = CodeExecutorAgent("a", StuckExecutor(token), approval_func=ApprovalRules())
    seen = asyncio.run(run_until_cancelled(agent, CODE, token))
    assert [type(item) for item in seen] == [TextMessage, CodeApprovalEvent]


@pytest.mark.parametrize("way", ["close", "cancel"])
@pytest.mark.parametrize("has_model", [True, False])
def test_a_stream_that_is_closed_or_cancelled_leaves_nothing_running(
    has_model: bool, way: str
) -> None:
    task = "```python\nimport os\nprint(os.getpid(), flush=True)\nwhile True: pass\n```"

    async def run() -> int:
        with pytest.warns(UserWarning, match="local machine"):
            executor = LocalCommandLineCodeExecutor()
        agent = CodeExecutorAgent(
            "a",
            executor,
            model_client=model(task) if has_model else None,
            approval_func=ApprovalRules(),
        )
        async with executor:
            pid = 0
            stream = agent.run_stream(task=task)
            async for item in stream:
                if isinstance(item, CodeOutputEvent):
                    pid = int(item.content)
                    break
            if way == "close":
                await stream.aclose()
            else:
                rest = asyncio.ensure_future(anext(stream))
                await asyncio.sleep(0)
                rest.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await rest
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
            await check_usable(executor)
        return pid

    assert asyncio.run(run()) > 0


def test_what_was_seen_before_a_cancellation_goes_on_afterwards(executor: Any) -> None:
    token = CancellationToken()
    client = model(CODE, "Done.")
    agent = CodeExecutorAgent("a", executor, model_client=client)

    async def run() -> list[Any]:
        await run_until_cancelled(agent, "First.", token, CodeGenerationEvent)
        await agent.run(task="Second.")
        return [message.content for message in await agent.model_context.get_messages()]

    assert asyncio.run(run()) == ["First.", CODE, "Second.", "Done."]


@pytest.mark.parametrize("by_token", [True, False])
def test_output_before_a_cancellation_stays_in_the_context(executor: Any, by_token: bool) -> None:
    token = CancellationToken()
    agent = CodeExecutorAgent("a", executor, model_client=model(FOREVER))

    async def run() -> list[Any]:
        async def read() -> None:
            async for item in agent.run_stream(task="Go.", cancellation_token=token):
                if isinstance(item, CodeOutputEvent):
                    loop.call_soon(token.cancel if by_token else task.cancel)

        loop = asyncio.get_running_loop()
        task = asyncio.create_task(read())
        with pytest.raises(asyncio.CancelledError):
            await task
        return [message.content for message in await agent.model_context.get_messages()]

    *_, code, output = asyncio.run(run())
    assert code == FOREVER
    assert "begun\n\nCancelled: " in output
