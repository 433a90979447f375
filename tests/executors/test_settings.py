"""Settings of executors: saved, loaded and passed on to branches, or refused."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cellblock import (
    BackendError,
    CodeBlock,
    CodeExecutor,
    ComponentError,
    ExecutorStopped,
    LocalCommandLineCodeExecutor,
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
    SandboxSessionServer,
    create_virtual_env,
)
from cellblock.executors.session import sandbox_place
from cellblock.executors.session.fork_request import ForkRequest
from cellblock.sandbox.probe import unavailable_reason
from tests.executors.session.live_session import forked, open_session
from tests.executors.session.test_saved_values import NATIVE_THREAD

needs_sandbox = pytest.mark.skipif(bool(unavailable_reason()), reason=unavailable_reason())
pytestmark = [pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor")]
WITH_ENVIRONMENT = [
    LocalCommandLineCodeExecutor,
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
]


def answer(prompt: str) -> str:
    """Answer `input()`."""
    return f"answer to {prompt}"


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Return the context of a virtual environment with nothing but Python."""
    folder = tmp_path_factory.mktemp("bare")
    command = [sys.executable, "-m", "venv", "--without-pip", folder]
    subprocess.run(command, check=True)
    programs = folder / "bin"
    return SimpleNamespace(env_exe=str(programs / "python"), bin_path=str(programs))


# saved configurations


@pytest.mark.parametrize("kind", WITH_ENVIRONMENT)
def test_a_saved_configuration_has_the_virtual_environment(
    kind: type[Any], context: SimpleNamespace
) -> None:
    executor = kind(virtual_env_context=context)
    saved = executor.dump_component()
    assert saved.config["virtual_env_context"] == vars(context)
    loaded = CodeExecutor.load_component(saved.to_json())
    assert loaded.dump_component() == saved


def test_blocks_of_a_loaded_executor_run_in_the_saved_environment(context: SimpleNamespace) -> None:
    saved = LocalCommandLineCodeExecutor(virtual_env_context=context).dump_component()

    async def run() -> str:
        async with CodeExecutor.load_component(saved) as loaded:
            code = "import sys; print(sys.executable)"
            return (await loaded.execute_code_blocks([CodeBlock(code, "python")])).output

    assert asyncio.run(run()).strip() == context.env_exe


def test_what_cannot_be_saved_is_refused_by_name() -> None:
    with pytest.raises(ComponentError, match="input_callback cannot be saved"):
        SandboxSessionCodeExecutor(input_callback=answer).dump_component()
    with pytest.raises(ComponentError, match="server cannot be saved"):
        SandboxSessionCodeExecutor(server=SandboxSessionServer()).dump_component()


# branches


class Labelled(SandboxSessionCodeExecutor):
    """A session whose constructor has other parameters than its base class."""

    def __init__(self, label: str, folder: Path) -> None:
        super().__init__(30, folder, input_callback=answer)
        self.label = label


@needs_sandbox
def test_a_branch_has_the_settings_of_its_session(tmp_path: Path) -> None:
    executor = Labelled("first", tmp_path)

    async def run() -> tuple[Labelled, str, str]:
        async with executor:
            [branch] = await executor.fork()
            outputs: list[str] = []
            async with branch:
                for _ in range(2):
                    block = CodeBlock("print(input('Name? '))", "python")
                    outputs.append((await branch.execute_code_blocks([block])).output)
                    await branch.restart()
            return branch, outputs[0], outputs[1]

    branch, before, after = asyncio.run(run())
    assert before == after
    assert before.endswith("answer to Name? \n")
    assert (branch.label, branch.timeout, branch.limits) == ("first", 30, executor.limits)
    assert branch.work_dir != tmp_path


@needs_sandbox
@pytest.mark.pythons
@pytest.mark.slow
def test_a_branch_that_restarts_keeps_its_virtual_environment(tmp_path: Path) -> None:
    context = create_virtual_env(tmp_path / "venv")
    command = [context.env_exe, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    folder = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    Path(folder, "only_here.py").write_text("name = 'only here'\n")
    with (
        open_session(None, virtual_env_context=context, packages=["ipython"]) as session,
        forked(session) as [branch],
    ):
        assert branch.output_of("import only_here; print(only_here.name)") == "only here"
        asyncio.run(branch.executor.restart())
        assert branch.output_of("import only_here; print(only_here.name)") == "only here"


@needs_sandbox
@pytest.mark.parametrize("code", ["pass", NATIVE_THREAD])
def test_a_stop_during_a_fork_is_reported_as_a_stop(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = ForkRequest.send

    async def run() -> None:
        async with SandboxSessionCodeExecutor() as session:
            await session.execute_code_blocks([CodeBlock(code, "python")])

            async def stop_and_send(*args: Any) -> None:
                await session._stop()
                await send(*args)

            monkeypatch.setattr(ForkRequest, "send", stop_and_send)
            await session.fork(3)

    with pytest.raises(ExecutorStopped):
        asyncio.run(run())


@needs_sandbox
def test_a_stop_while_a_fork_copies_its_folder_is_reported_as_a_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        async with SandboxSessionCodeExecutor() as session:

            async def stop_first(work: Callable[[], None]) -> None:
                await session._stop()
                await asyncio.to_thread(work)

            monkeypatch.setattr(sandbox_place, "run_in_thread", stop_first)
            await session.fork(3)

    with pytest.raises(ExecutorStopped):
        asyncio.run(run())


@needs_sandbox
def test_a_virtual_environment_without_ipython_is_named_as_the_cause(
    context: SimpleNamespace,
) -> None:
    executor = SandboxSessionCodeExecutor(virtual_env_context=context)
    with pytest.raises(BackendError) as caught:
        asyncio.run(executor.start())
    message = str(caught.value)
    assert message.startswith(f"Sessions need IPython, which {context.env_exe} does not have.")
    assert "pip install ipython" in message
    assert "landlock" not in message
