"""The runtime server of an executor ends: what the next block gets, and how a stop differs."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from cellblock import (
    BackendLost,
    CodeBlock,
    ExecutorStopped,
    LocalCommandLineCodeExecutor,
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
    SessionError,
    sync,
)
from cellblock.executors.command_line.base import CommandLineExecutor
from cellblock.executors.session.base import SessionExecutor
from cellblock.runtime.linux.process_tree import has_ended
from tests.executors.session.live_session import skip_without_sandbox

pytestmark = pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor")
Executor = CommandLineExecutor | SessionExecutor
FRESH: dict[str, type[Executor]] = {
    "sandbox": SandboxCommandLineCodeExecutor,
    "local": LocalCommandLineCodeExecutor,
}
KINDS: dict[str, type[Executor]] = {**FRESH, "session": SandboxSessionCodeExecutor}


def make(kind: str, **options: Any) -> Executor:
    skip_without_sandbox()
    return KINDS[kind](**options)


async def run(executor: Executor, code: str) -> str:
    return (await executor.execute_code_blocks([CodeBlock(code, "python")])).output.strip()


async def kill_server(executor: Executor) -> None:
    assert executor.place.connection is not None
    server = executor.place.connection.pid
    os.kill(server, signal.SIGKILL)
    while not has_ended(server):
        await asyncio.sleep(0.001)


async def begin_block(executor: Executor) -> "asyncio.Task[str]":
    """Start a block that does not end, and return when it runs."""
    code = "import time; open('begun', 'w').close(); time.sleep(600)"
    task = asyncio.create_task(run(executor, code))
    while not Path(executor.work_dir, "begun").exists():
        await asyncio.sleep(0.01)
    return task


@pytest.mark.parametrize("kind", FRESH)
async def test_blocks_after_the_loss_of_the_server_run_on_a_new_one(kind: str) -> None:
    async with make(kind) as executor:
        assert await run(executor, "open('kept', 'w').write('kept') and None") == ""
        await kill_server(executor)
        assert await run(executor, "print(open('kept').read())") == "kept"
        task = await begin_block(executor)
        await kill_server(executor)
        with pytest.raises(BackendLost, match="The next call starts a new server"):
            await task
        assert await run(executor, "print(open('kept').read())") == "kept"
        await kill_server(executor)
    assert not executor._is_open


async def test_a_session_says_how_to_go_on_after_the_loss_of_its_server() -> None:
    async with make("session") as executor:
        await run(executor, "x = 1")
        task = await begin_block(executor)
        await kill_server(executor)
        for lost in (task, run(executor, "x")):
            with pytest.raises(BackendLost, match=r"Call restart\(\)"):
                await lost
        await executor.restart()
        assert await run(executor, "'x' in globals()") == "False"


@pytest.mark.parametrize("kind", KINDS)
async def test_stop_during_a_block_is_no_loss(kind: str) -> None:
    executor = make(kind)
    await executor.start()
    task = await begin_block(executor)
    await executor.stop()
    with pytest.raises(ExecutorStopped, match="was stopped"):
        await task


async def test_use_of_a_session_after_its_with_block_is_an_error() -> None:
    skip_without_sandbox()
    executor = SandboxSessionCodeExecutor()
    async with executor:
        await run(executor, "x = 1")
    for use in (run(executor, "x"), executor.get("x"), executor.checkpoint(), executor.fork()):
        with pytest.raises(SessionError, match=r"Call start\(\)"):
            await use
    await executor.start()
    assert await run(executor, "'x' in globals()") == "False"
    await executor.stop()
    with sync.SandboxSessionCodeExecutor() as session:
        session.set("x", 1)
    for wrong in (lambda: session.get("x"), lambda: session.checkpoint()):
        with pytest.raises(SessionError, match=r"Call start\(\)"):
            wrong()
