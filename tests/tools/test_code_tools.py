"""Models that run code: in a fresh process, and in a live session with files and pictures."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from cellblock import (
    CancellationToken,
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
    load_component,
)
from cellblock.tools import (
    CodeSessionTool,
    ImageResultContent,
    PythonCodeExecutionTool,
    StaticWorkbench,
    TextResultContent,
)

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYGAAAAAEAAH2FzhVAAAAAElFTkSuQmCC"
)
SHOW_PIXEL = f"from IPython.display import display\ndisplay({{'image/png': '{PIXEL}'}}, raw=True)"
WAIT = "open('started', 'w').close()\nimport time\ntime.sleep(600)"
T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def test_a_cancelled_call_leaves_the_executor_usable(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "started")

    async def work() -> None:
        async with SandboxCommandLineCodeExecutor(work_dir=tmp_path) as executor:
            workbench = StaticWorkbench([PythonCodeExecutionTool(executor)])
            token = CancellationToken()
            calling = asyncio.ensure_future(
                workbench.call_tool("CodeExecutor", {"code": WAIT}, token)
            )
            await asyncio.to_thread((tmp_path / "started").read_text)  # until the code opens it
            token.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
            result = await workbench.call_tool("CodeExecutor", {"code": "print(1)"})
            assert result.to_text() == "1\n"

    run(work())


def test_an_executor_that_cannot_start_is_an_error_for_the_model() -> None:
    executor = SandboxCommandLineCodeExecutor(preload=["no_such_module"])
    workbench = StaticWorkbench([PythonCodeExecutionTool(executor)])
    result = run(workbench.call_tool("CodeExecutor", {"code": "print(1)"}))
    assert result.is_error
    assert "no_such_module" in result.to_text()


def test_a_session_tool_returns_files_pictures_and_errors_and_keeps_variables() -> None:
    async def work() -> None:
        async with SandboxSessionCodeExecutor() as executor:
            workbench = StaticWorkbench([CodeSessionTool(executor)])
            code = f"x = 20\nopen('a.txt', 'w').write('hi')\nprint('done')\n{SHOW_PIXEL}"
            result = await workbench.call_tool("CodeSession", {"code": code})
            text, picture = result.result
            assert isinstance(text, TextResultContent)
            assert "done" in text.content
            assert "a.txt" in text.content
            assert isinstance(picture, ImageResultContent)
            assert picture.content.to_base64() == PIXEL
            assert not result.is_error
            assert "21" in (await workbench.call_tool("CodeSession", {"code": "x + 1"})).to_text()
            failed = await workbench.call_tool("CodeSession", {"code": "import os; os._exit(3)"})
            assert re.search(r"exit code\D*3", failed.to_text())
            assert failed.is_error
            assert not (await workbench.call_tool("CodeSession", {"code": "print(1)"})).is_error

            tool = CodeSessionTool(executor, max_characters=100)
            code = f"open('b.txt', 'w').close()\n{SHOW_PIXEL}\n1 / 0"
            data = await tool.run_json({"code": code}, CancellationToken())
            assert not data.success
            assert "ZeroDivisionError" in data.output
            assert "b.txt" in data.files
            assert [image.to_base64() for image in data.images] == [PIXEL]
            long = await tool.run_json({"code": "print('x' * 1000)"}, CancellationToken())
            assert long.output.startswith("x" * 50)
            assert "characters left out" in long.output

    run(work())


def test_a_session_tool_needs_a_live_executor() -> None:
    with pytest.raises(ValueError, match="SandboxCommandLineCodeExecutor has no live session"):
        CodeSessionTool(SandboxCommandLineCodeExecutor())
    with pytest.raises(ValueError, match="max_characters must be at least 1"):
        CodeSessionTool(SandboxSessionCodeExecutor(), max_characters=0)


def test_a_session_tool_is_saved_and_loaded() -> None:
    tool = CodeSessionTool(
        SandboxSessionCodeExecutor(timeout=7), name="python", description="Run.", max_characters=9
    )
    loaded = load_component(tool.dump_component().to_json())
    assert isinstance(loaded, CodeSessionTool)
    assert loaded.schema == tool.schema
    assert loaded.dump_component() == tool.dump_component()
