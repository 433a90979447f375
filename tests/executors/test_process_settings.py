"""Executors work, or say why not, whatever the calling process has set for itself."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from cellblock import CodeBlock, SandboxCommandLineCodeExecutor, SandboxSessionCodeExecutor
from cellblock.agents import AssistantAgent
from cellblock.models import ReplayChatCompletionClient, UserMessage
from cellblock.models.openai import OpenAIChatCompletionClient
from tests.executors.session.live_session import skip_without_sandbox

_NEEDS_ASYNCIO = r"event loop of asyncio. Under trio, call .*asyncio.run"
KINDS = [
    "SandboxCommandLineCodeExecutor()",
    "SandboxCommandLineCodeExecutor(isolation='landlock')",
    "SandboxSessionCodeExecutor()",
    "LocalCommandLineCodeExecutor()",
]

RUN_BLOCKS = """
import json, os, signal, sys, warnings
from cellblock import CodeBlock
from cellblock.sync import (
    LocalCommandLineCodeExecutor, SandboxCommandLineCodeExecutor, SandboxSessionCodeExecutor
)

setting, kind = sys.argv[1:]
exec(setting)
code = "import subprocess; print(subprocess.run(['sh', '-c', 'exit 3']).returncode)"
warnings.simplefilter("ignore")
try:
    with eval(kind) as executor:
        print(json.dumps(executor.execute_code_blocks([CodeBlock(code, "python")]).output))
except Exception as error:
    print(json.dumps(f"{type(error).__name__}: {error}"))
"""


def output_with(setting: str, kind: str, folder: Path) -> str:
    """Return what a block of the executor `kind` prints, or its error, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_BLOCKS, setting, kind],
        stdout=subprocess.PIPE,
        cwd=folder,
        text=True,
        check=True,
    )
    return str(json.loads(done.stdout))


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_run_when_the_caller_ignores_sigchld(kind: str, tmp_path: Path) -> None:
    skip_without_sandbox()
    ignore = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
    assert output_with(ignore, kind, tmp_path) == "3\n"


def test_packages_are_refused_when_the_caller_ignores_sigchld(tmp_path: Path) -> None:
    skip_without_sandbox()
    ignore = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
    kind = "SandboxCommandLineCodeExecutor(packages=['missing-package==1'])"
    (tmp_path / "cache").mkdir()
    setting = f"{ignore}; os.environ['XDG_CACHE_HOME'] = {str(tmp_path / 'cache')!r}"
    error = output_with(setting, kind, tmp_path)
    assert "Call signal.signal(signal.SIGCHLD, signal.SIG_DFL)." in error


@pytest.mark.parametrize("kind", KINDS)
def test_a_umask_that_denies_the_caller_its_own_files_is_refused(kind: str, tmp_path: Path) -> None:
    assert output_with("os.umask(0o777)", kind, tmp_path) == (
        "BackendError: The umask of this process is 0777, which denies it its own new files. "
        "Call os.umask(0o077) before an executor starts, or run `umask 077` in the shell."
    )


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_run_with_a_umask_that_denies_files_to_all_others(kind: str, tmp_path: Path) -> None:
    skip_without_sandbox()
    assert output_with("os.umask(0o077)", kind, tmp_path) == "3\n"


async def use_executor() -> None:
    await SandboxCommandLineCodeExecutor().execute_code_blocks([CodeBlock("1", "python")])


async def stream_executor() -> None:
    async for _ in SandboxCommandLineCodeExecutor().execute_stream([CodeBlock("1", "python")]):
        pass


async def start_executor() -> None:
    async with SandboxCommandLineCodeExecutor():
        pass


async def run_agent() -> None:
    await AssistantAgent("helper", ReplayChatCompletionClient(["done"])).run(task="work")


async def ask_model() -> None:
    client = OpenAIChatCompletionClient(model="gpt-4o", api_key="no key", base_url="http://[::1]:9")
    await client.create([UserMessage(content="work", source="user")])


@pytest.mark.parametrize(
    "use", [use_executor, stream_executor, start_executor, run_agent, ask_model]
)
def test_another_library_than_asyncio_is_named_with_the_way_out(
    use: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    # Trio runs a coroutine as this does. It is not installed here.
    with pytest.raises(RuntimeError, match=_NEEDS_ASYNCIO):
        use().send(None)


@pytest.mark.parametrize("kind", [SandboxCommandLineCodeExecutor, SandboxSessionCodeExecutor])
def test_a_started_executor_names_the_way_out_too(
    kind: type[SandboxCommandLineCodeExecutor],
) -> None:
    skip_without_sandbox()
    executor = kind()
    asyncio.run(executor.start())
    work = executor.execute_code_blocks([CodeBlock("1", "python")])
    with pytest.raises(RuntimeError, match=_NEEDS_ASYNCIO):
        work.send(None)
    asyncio.run(executor.stop())
