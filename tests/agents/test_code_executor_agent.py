"""CodeExecutorAgent runs code: that of messages, and that of a model."""

from __future__ import annotations

import asyncio
import base64
import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cellblock import (
    CancellationToken,
    CodeResult,
    ComponentError,
    JupyterCodeExecutor,
    LocalCommandLineCodeExecutor,
    PackageError,
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
    SessionCodeResult,
    load_component,
)
from cellblock.agents import (
    ApprovalRequest,
    ApprovalResponse,
    ApprovalRules,
    AssistantAgent,
    CodeExecutionEvent,
    CodeExecutorAgent,
    CodeGenerationEvent,
    CodeOutputEvent,
    ModelClientStreamingChunkEvent,
    MultiModalMessage,
    Response,
    TextMessage,
    ThoughtEvent,
)
from cellblock.errors import ModelOutputError
from cellblock.models import (
    BufferedChatCompletionContext,
    CreateResult,
    FinishReasons,
    FunctionCall,
    Image,
    RequestUsage,
)
from cellblock.teams import RoundRobinGroupChat
from tests.agents.scripted import executor, model, run_agent

__all__ = ["executor"]

CODE = "```python\nprint('hello')\n```"
PNG = b"\x89PNG\r\n\x1a\n and more"
USAGE = RequestUsage(1, 2)


def cut_off(text: str, reason: FinishReasons = "length") -> CreateResult:
    return CreateResult(finish_reason=reason, content=text, usage=USAGE, cached=False)


# without a model


@pytest.mark.parametrize(
    ("task", "output"),
    [
        ("```bash\necho bash\n```", "bash\n"),
        ("```py\nprint('py')\n```", "py\n"),
        ("```Python3 title='x'\nprint('info')\n```", "info\n"),
        ("```\nprint('untagged')\n```", "untagged\n"),
        ("~~~sh\necho tildes\n~~~", "tildes\n"),
        ("````python\nprint('```')\n````", "```\n"),
        ("1. do\n   ```python\n   print('list')\n   ```", "list\n"),
        ("```python\nprint('open')", "open\n"),
        ("Run: ```python\nprint('after text')\n```", "after text\n"),
        ("```sh\necho end```", "end\n"),
        ("<think>\n```sh\necho no\n```\n</think>```sh\necho answer\n```", "answer\n"),
    ],
)
def test_every_kind_of_fence_runs(executor: Any, task: str, output: str) -> None:
    (answer,) = run_agent(CodeExecutorAgent("a", executor), task)
    assert answer.to_text() == output


@pytest.mark.parametrize("task", ["```python\n```", "Run: ```python\n```", "```sh\n \n```"])
def test_a_fence_without_code_does_not_run(executor: Any, task: str) -> None:
    agent = CodeExecutorAgent("a", executor)
    (answer,) = run_agent(agent, task)
    assert answer.to_text() == agent.NO_CODE_BLOCKS_FOUND_MESSAGE


def test_an_untagged_fence_beside_code_is_its_output(executor: Any) -> None:
    (answer,) = run_agent(CodeExecutorAgent("a", executor), f"{CODE}\nprints\n```\nhello\n```")
    assert answer.to_text() == "hello\n"


def test_output_is_streamed_and_is_not_in_the_transcript(executor: Any) -> None:
    agent = CodeExecutorAgent("a", executor)

    async def collect() -> list[Any]:
        return [item async for item in agent.run_stream(task="```sh\necho 1; echo 2 >&2\n```")]

    items = asyncio.run(collect())
    live = [item for item in items if isinstance(item, CodeOutputEvent)]
    assert {item.stream: item.content for item in live} == {"stdout": "1\n", "stderr": "2\n"}
    assert {item.block for item in live} == {0}
    assert [type(item) for item in items[-1].messages] == [TextMessage, TextMessage]


def test_the_answer_shows_what_a_model_should_see(executor: Any) -> None:
    agent = CodeExecutorAgent("a", executor, max_output_characters=10)
    (answer,) = run_agent(agent, "```python\nopen('made.txt', 'w')\nprint('x' * 100)\n```")
    assert answer.to_text() == (
        "xxxxx\n[... 91 characters left out ...]\nxxxx\nFiles created or changed: made.txt"
    )


@dataclass
class TheirResult:
    exit_code: int
    output: str


class TheirExecutor:
    """An executor as users of AutoGen write it."""

    async def execute_code_blocks(self, code_blocks: Any, cancellation_token: Any) -> TheirResult:
        return TheirResult(len(code_blocks), code_blocks[0].code)


def test_somebody_elses_executor_is_used() -> None:
    with pytest.warns(UserWarning, match="No approval function set"):
        agent = CodeExecutorAgent("a", TheirExecutor())
    (answer,) = run_agent(agent, CODE)
    assert answer.to_text() == (
        "The script ran, then exited with an error (POSIX exit code: 1)\n"
        "Its output was:\nprint('hello')\n"
    )
    with pytest.raises(ComponentError, match="TheirExecutor cannot be saved"):
        agent.dump_component()


def test_code_of_an_answer_that_was_cut_off_does_not_run(executor: Any) -> None:
    coder = AssistantAgent("coder", model(cut_off("```python\nprint('half')")))
    runner = CodeExecutorAgent("runner", executor)
    team = RoundRobinGroupChat([coder, runner], max_turns=2)
    result = asyncio.run(team.run(task="go"))
    assert result.messages[-1].to_text() == runner.CUT_OFF_MESSAGE


# with a model


@pytest.mark.parametrize(
    ("reason", "told"), [("length", "Raise max_tokens"), ("content_filter", "service filtered")]
)
def test_code_that_is_cut_off_does_not_run(executor: Any, reason: Any, told: str) -> None:
    client = model(cut_off("```python\nprint('half')", reason))
    thought, answer = run_agent(CodeExecutorAgent("a", executor, model_client=client), "go")
    assert isinstance(thought, ThoughtEvent)
    assert told in thought.content
    assert answer.metadata == {"finish_reason": reason, "stop_reason": thought.content}


def test_on_messages_returns_the_events_too(executor: Any) -> None:
    agent = CodeExecutorAgent("a", executor, model_client=model(CODE, "Done."))
    message = TextMessage(content="Say hello.", source="user")
    response = asyncio.run(agent.on_messages([message], CancellationToken()))
    assert response.chat_message.to_text() == "Done."
    events = [type(item) for item in response.inner_messages or []]
    assert events == [CodeGenerationEvent, CodeExecutionEvent]


def test_thoughts_and_tokens_are_told(executor: Any) -> None:
    answers = [
        CreateResult(finish_reason="stop", content=text, usage=USAGE, cached=False, thought=thought)
        for text, thought in ((CODE, "First."), ("Done.", "Last."))
    ]
    items = run_agent(CodeExecutorAgent("a", executor, model_client=model(*answers)), "Go.")
    assert [type(item).__name__ for item in items] == [
        "ThoughtEvent",
        "CodeGenerationEvent",
        "CodeExecutionEvent",
        "ThoughtEvent",
        "TextMessage",
    ]
    assert [item.models_usage for item in items] == [None, USAGE, None, None, USAGE]


def test_pieces_of_an_answer_name_the_message_that_has_all_of_it(executor: Any) -> None:
    agent = CodeExecutorAgent(
        "a", executor, model_client=model(CODE, "All is done."), model_client_stream=True
    )
    items = run_agent(agent, "Go.")
    pieces = [item for item in items if isinstance(item, ModelClientStreamingChunkEvent)]
    generation, execution, answer = [item for item in items if item not in pieces]
    assert isinstance(execution, CodeExecutionEvent)
    owners = {generation.id: "", answer.id: ""}
    for piece in pieces:
        owners[str(piece.full_message_id)] += piece.content
    assert owners == {generation.id: "```python print('hello') ```", answer.id: "All is done."}


def displayed_picture() -> str:
    picture = base64.b64encode(PNG).decode()
    return (
        "```python\nfrom IPython.display import display\n"
        f"display({{'image/png': '{picture}', 'text/plain': '<a plot>'}}, raw=True)\n```"
    )


@pytest.mark.parametrize("vision", [True, False])
def test_a_model_with_vision_sees_pictures(vision: bool) -> None:
    client = model(displayed_picture(), "A plot.", vision=vision)

    async def see() -> None:
        async with SandboxSessionCodeExecutor() as session:
            agent = CodeExecutorAgent("a", session, model_client=client)
            result = await agent.run(task="Plot.")
            event = result.messages[-2]
            assert isinstance(event, CodeExecutionEvent)
            assert isinstance(event.result, SessionCodeResult)

    asyncio.run(see())
    content = client.create_calls[1]["messages"][-1].content
    if vision:
        assert content[0].startswith("<a plot>\n")
        assert content[1] == Image.from_bytes(PNG)
    else:
        assert content.startswith("<a plot>\n")


def test_a_model_without_vision_gets_no_images(executor: Any) -> None:
    client = model("Nice.")
    agent = CodeExecutorAgent("a", executor, model_client=client, system_message=None)
    run_agent(agent, MultiModalMessage(content=["Look", Image.from_bytes(PNG)], source="user"))
    assert client.create_calls[0]["messages"][0].content == "Look\n<image>"


def test_a_reset_forgets_the_conversation(executor: Any) -> None:
    agent = CodeExecutorAgent("a", executor, model_client=model("One.", "Two."))
    run_agent(agent, "Go.")

    async def reset() -> list[Any]:
        await agent.on_reset(CancellationToken())
        return await agent.model_context.get_messages()

    assert asyncio.run(reset()) == []


def test_the_conversation_is_saved_and_loaded(executor: Any) -> None:
    agent = CodeExecutorAgent("a", executor, model_client=model("One."))
    run_agent(agent, "Go.")
    other = CodeExecutorAgent("b", executor, model_client=model("Two."))

    async def move() -> None:
        await other.load_state(json.loads(json.dumps(await agent.save_state())))
        assert await other.model_context.get_messages() == await agent.model_context.get_messages()
        await other.load_state({"type": "BaseState", "version": "1.0.0"})  # AutoGen's

    asyncio.run(move())


# saved configurations


def test_all_settings_are_saved_and_loaded(executor: Any, tmp_path: Path) -> None:
    agent = CodeExecutorAgent(
        "coder",
        SandboxCommandLineCodeExecutor(timeout=7, work_dir=tmp_path),
        model_client=model("One."),
        model_context=BufferedChatCompletionContext(5),
        model_client_stream=True,
        max_retries_on_error=3,
        description="writes code",
        system_message=None,
        sources=["user"],
        supported_languages=["py"],
        approval_func=ApprovalRules(network="deny"),
        max_seconds=30,
        max_tokens=1000,
        max_output_characters=None,
    )
    saved = agent.dump_component()
    assert saved.provider == "cellblock.agents.CodeExecutorAgent"
    loaded = load_component(json.loads(saved.to_json()))
    assert isinstance(loaded, CodeExecutorAgent)
    assert loaded.dump_component() == saved
    assert (loaded.name, loaded.description) == ("coder", "writes code")
    plain = CodeExecutorAgent("a", executor).dump_component()
    assert load_component(plain).dump_component() == plain
    loop = CodeExecutorAgent("a", executor, model_client=model("One."), max_turns=4)
    assert load_component(loop.dump_component()).dump_component().config["max_turns"] == 4


def test_autogens_configuration_is_loaded() -> None:
    config: dict[str, Any] = {
        "name": "coder",
        "code_executor": {
            "provider": "autogen_ext.code_executors.local.LocalCommandLineCodeExecutor",
            "component_type": "code_executor",
            "config": {"timeout": 60, "work_dir": None},
        },
        "model_client": None,
        "description": "runs code",
        "sources": None,
        "system_message": None,
        "model_client_stream": False,
        "model_context": {
            "provider": "autogen_core.model_context.UnboundedChatCompletionContext",
            "config": {},
        },
        "supported_languages": ["python"],
    }
    saved: dict[str, Any] = {
        "provider": "autogen_agentchat.agents.CodeExecutorAgent",
        "config": config,
    }
    with pytest.warns(UserWarning, match="local machine|No approval"):
        agent = load_component(saved)
    assert isinstance(agent, CodeExecutorAgent)
    assert agent.description == "runs code"


def test_an_approval_function_cannot_be_saved(executor: Any) -> None:
    def decide(request: ApprovalRequest) -> ApprovalResponse:
        raise AssertionError

    agent = CodeExecutorAgent("a", executor, approval_func=decide)
    with pytest.raises(ValueError, match="The approval function is not serializable"):
        agent.dump_component()


# bad input


def test_code_that_nobody_approves_is_warned_about_without_a_sandbox(executor: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        unsafe = [LocalCommandLineCodeExecutor(), JupyterCodeExecutor()]
    for each in unsafe:
        with pytest.warns(
            UserWarning, match="No approval function set for CodeExecutorAgent"
        ) as seen:
            CodeExecutorAgent("a", each)
        assert seen[0].filename == __file__
    CodeExecutorAgent("a", unsafe[0], approval_func=ApprovalRules())
    CodeExecutorAgent("a", executor)
    CodeExecutorAgent("a", SandboxSessionCodeExecutor())


def test_an_executor_that_cannot_start_raises_its_error() -> None:
    broken = SandboxCommandLineCodeExecutor(preload=["no_such_module"])
    client = model(CODE, "unused")
    agent = CodeExecutorAgent("a", broken, model_client=client)
    seen: list[Any] = []

    async def run() -> None:
        async for item in agent.run_stream(task="Go."):
            seen.append(item)

    with pytest.raises(PackageError, match="no_such_module"):
        asyncio.run(run())
    context = asyncio.run(agent.model_context.get_messages())
    assert [type(item) for item in seen] == [TextMessage, CodeGenerationEvent]
    assert [message.content for message in context] == ["Go.", CODE]


def test_a_model_that_requests_a_tool_instead_of_its_last_answer_raises(executor: Any) -> None:
    call = FunctionCall(id="1", name="f", arguments="{}")
    answer = CreateResult(finish_reason="function_calls", content=[call], usage=USAGE, cached=False)
    with pytest.raises(
        ModelOutputError, match="Reflect on tool use produced no valid text response"
    ):
        run_agent(CodeExecutorAgent("a", executor, model_client=model(CODE, answer)), "Go.")


def test_blocks_can_be_run_directly(executor: Any) -> None:
    agent = CodeExecutorAgent("a", executor, approval_func=ApprovalRules(network="deny"))

    async def run(task: str) -> CodeResult:
        message = TextMessage(content=task, source="user")
        blocks = await agent.extract_code_blocks_from_messages([message])
        return await agent.execute_code_block(blocks, CancellationToken())

    assert asyncio.run(run(CODE)).output == "hello\n"
    assert asyncio.run(run("```sh\ncurl x.example\n```")).exit_code == 1


def test_code_keeps_the_line_end_that_the_message_has(executor: Any) -> None:
    agent = CodeExecutorAgent("a", executor)
    texts = ["```sh\nls```", "```sh\npwd\n```", "```py\nb\n\n```"]
    messages = [TextMessage(content=text, source="user") for text in texts]
    blocks = asyncio.run(agent.extract_code_blocks_from_messages(messages))
    assert [block.code for block in blocks] == ["ls", "pwd\n", "b\n\n"]  # as AutoGen 0.7 has them


def test_the_response_is_last(executor: Any) -> None:
    agent = CodeExecutorAgent("a", executor, model_client=model(CODE, ""))

    async def collect() -> list[Any]:
        message = TextMessage(content="Go.", source="user")
        return [item async for item in agent.on_messages_stream([message], CancellationToken())]

    items = asyncio.run(collect())
    assert isinstance(items[-1], Response)
    assert isinstance(items[-2], ThoughtEvent)
