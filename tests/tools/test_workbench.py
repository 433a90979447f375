"""Sets of tools: errors, cancellation, pictures, saving."""

from __future__ import annotations

import asyncio

import pytest

from cellblock import CancellationToken, SandboxCommandLineCodeExecutor, load_component
from cellblock.models import Image
from cellblock.tools import (
    FunctionTool,
    ImageResultContent,
    PythonCodeExecutionTool,
    StaticWorkbench,
    TextResultContent,
    ToolOverride,
    ToolResult,
)

PIXEL = Image.from_base64(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYGAAAAAEAAH2FzhVAAAAAElFTkSuQmCC"
)


def draw() -> Image:
    return PIXEL


def missing_key() -> str:
    return {"a": "b"}["c"]


def silent() -> None:
    raise RuntimeError


def call(workbench: StaticWorkbench, name: str) -> ToolResult:
    return asyncio.run(workbench.call_tool(name))


def workbench_of(*functions: object) -> StaticWorkbench:
    return StaticWorkbench([FunctionTool(each, "A tool.") for each in functions])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - functions


def test_a_tool_that_returns_an_image_gives_a_picture() -> None:
    result = call(workbench_of(draw), "draw")
    assert result.result == [ImageResultContent(content=PIXEL)]
    assert result.to_text("[image]") == "[image]"
    assert result.to_text() == f"[Image: {PIXEL.to_base64()}]"


def test_an_error_without_words_is_named_by_its_class() -> None:
    workbench = workbench_of(missing_key, silent)
    assert call(workbench, "missing_key").to_text() == "KeyError: 'c'"
    assert call(workbench, "silent").to_text() == "RuntimeError"
    assert call(workbench, "silent").is_error


def test_a_result_survives_json() -> None:
    result = ToolResult(
        name="a", result=[TextResultContent(content="b"), ImageResultContent(content=PIXEL)]
    )
    assert ToolResult.model_validate_json(result.model_dump_json()) == result


def test_a_cancelled_token_calls_nothing() -> None:
    called: list[int] = []

    async def note() -> None:
        called.append(1)

    token = CancellationToken()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(workbench_of(note).call_tool("note", {}, token))
    assert called == []


@pytest.mark.parametrize("by_token", [True, False])
async def test_a_token_or_the_task_cancels_the_call_that_runs(by_token: bool) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    token = CancellationToken()
    calling = asyncio.ensure_future(workbench_of(wait).call_tool("wait", {}, token))
    await started.wait()
    if by_token:
        token.cancel()
    else:
        calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await ended.wait()


def test_two_tools_cannot_have_one_name() -> None:
    with pytest.raises(ValueError, match="Tool names must be unique"):
        workbench_of(draw, draw)


def test_an_override_must_name_a_tool() -> None:
    with pytest.raises(ValueError, match=r"override for 'paint', but the tools are \['draw'\]"):
        StaticWorkbench([FunctionTool(draw, "")], {"paint": ToolOverride(name="p")})


def test_tools_that_can_be_saved_are_saved_with_their_overrides() -> None:
    tool = PythonCodeExecutionTool(SandboxCommandLineCodeExecutor())
    workbench = StaticWorkbench([tool], {"CodeExecutor": ToolOverride(name="python")})
    loaded = load_component(workbench.dump_component().to_json())
    assert isinstance(loaded, StaticWorkbench)
    assert asyncio.run(loaded.list_tools()) == asyncio.run(workbench.list_tools())
