"""Executors work, or say why not, whatever the calling process has set for itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from cellblock import CodeBlock, SandboxCommandLineCodeExecutor, SandboxSessionCodeExecutor
from cellblock.agents import AssistantAgent
from cellblock.models import ReplayChatCompletionClient, UserMessage
from cellblock.models.openai import OpenAIChatCompletionClient
from tests.executors.programs import run_python
from tests.executors.session.live_session import skip_without_sandbox

pytestmark = pytest.mark.depends_on_user

_NEEDS_ASYNCIO = r"event loop of asyncio. Under trio, call .*asyncio.run"
BLOCK = CodeBlock("1", "python")
IGNORE = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
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

setting, kinds = sys.argv[1:]
exec(setting)
code = "import subprocess; print(subprocess.run(['sh', '-c', 'exit 3']).returncode)"
warnings.simplefilter("ignore")
outputs = []
for kind in json.loads(kinds):
    try:
        with eval(kind) as executor:
            outputs.append(executor.execute_code_blocks([CodeBlock(code, "python")]).output)
    except Exception as error:
        outputs.append(f"{type(error).__name__}: {error}")
print(json.dumps(outputs))
"""


def outputs_with(setting: str, kinds: list[str], folder: Path) -> list[str]:
    """Return what a block of each executor prints, or its error, in a process of their own."""
    skip_without_sandbox()
    done = run_python("-c", RUN_BLOCKS, setting, json.dumps(kinds), cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("setting", [IGNORE, "os.umask(0o077)"])
def test_blocks_run_when_the_caller_ignores_sigchld_or_denies_files_to_all_others(
    setting: str, tmp_path: Path
) -> None:
    assert outputs_with(setting, KINDS, tmp_path) == ["3\n"] * len(KINDS)


def test_packages_are_refused_when_the_caller_ignores_sigchld(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    setting = f"{IGNORE}; os.environ['XDG_CACHE_HOME'] = {str(tmp_path / 'cache')!r}"
    kind = "SandboxCommandLineCodeExecutor(packages=['missing-package==1'])"
    (error,) = outputs_with(setting, [kind], tmp_path)
    assert "Call signal.signal(signal.SIGCHLD, signal.SIG_DFL)." in error


def test_a_umask_that_denies_the_caller_its_own_files_is_refused(tmp_path: Path) -> None:
    assert set(outputs_with("os.umask(0o777)", KINDS, tmp_path)) == {
        "BackendError: The umask of this process is 0777, which denies it its own new files. "
        "Call os.umask(0o077) before an executor starts, or run `umask 077` in the shell."
    }


async def start_executor() -> None:
    async with SandboxCommandLineCodeExecutor():
        pass


async def stream_executor() -> None:
    async for _ in SandboxCommandLineCodeExecutor().execute_stream([BLOCK]):
        pass


def test_another_library_than_asyncio_is_named_with_the_way_out() -> None:
    client = OpenAIChatCompletionClient(model="gpt-4o", api_key="no key", base_url="http://[::1]:9")
    uses: list[Coroutine[Any, Any, Any]] = [
        start_executor(),
        stream_executor(),
        SandboxCommandLineCodeExecutor().execute_code_blocks([BLOCK]),
        AssistantAgent("helper", ReplayChatCompletionClient(["done"])).run(task="work"),
        client.create([UserMessage(content="work", source="user")]),
    ]
    for use in uses:
        # Trio runs a coroutine as this does. It is not installed here.
        with pytest.raises(RuntimeError, match=_NEEDS_ASYNCIO):
            use.send(None)


@pytest.mark.parametrize("kind", [SandboxCommandLineCodeExecutor, SandboxSessionCodeExecutor])
def test_a_started_executor_names_the_way_out_too(
    kind: type[SandboxCommandLineCodeExecutor],
) -> None:
    skip_without_sandbox()
    executor = kind()
    asyncio.run(executor.start())
    work = executor.execute_code_blocks([BLOCK])
    with pytest.raises(RuntimeError, match=_NEEDS_ASYNCIO):
        work.send(None)
    asyncio.run(executor.stop())
