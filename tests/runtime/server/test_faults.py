"""One fault, one victim: a system call of the server fails while it works for one executor.

strace makes the call fail, once for each time that it is made. A bystander on the same server keeps
its variables, and nothing hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import shutil
import signal
import subprocess
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Protocol

import pytest

from cellblock import (
    CodeBlock,
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
    SandboxSessionServer,
)
from cellblock.errors import CellblockError
from cellblock.runtime.linux import process_tree

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("strace") is None, reason="the program strace is missing"),
]

_FAULTS = [
    *[("server", call, "EMFILE") for call in "openat socketpair pipe2 fcntl pidfd_open".split()],
    *[("server", call, "ENOMEM") for call in "recvmsg sendmsg read epoll_wait pread64".split()],
    *[("server", call, "ENOSPC") for call in "epoll_ctl mkdir write".split()],
    ("server", "sendto", "EAGAIN"),
    *[("zygote", call, "ENOMEM") for call in "clone unshare setns recvmsg".split()],
    *[("broker", call, "ENOMEM") for call in "open_tree mount_setattr sendmsg recvfrom".split()],
    ("broker", "openat", "EMFILE"),
]
_MOST = 10  # of the calls of one kind that are made to fail, evenly spread over all

_HANG_SECONDS = 100


class Work(Protocol):
    """Uses what an executor can do. Errors of this library pass only if `strict`."""

    def __call__(self, *, strict: bool = False) -> Awaitable[None]: ...


def pid_of(server: int, name: str) -> int:
    """Return the process ID of a runtime server, or of its zygote or mount broker."""
    children = process_tree.children(server)
    zygote = next(pid for pid in children if process_tree.pid_in_namespace(pid) == 1)
    broker = next(pid for pid in children if pid != zygote)
    return {"server": server, "zygote": zygote, "broker": broker}[name]


@contextlib.contextmanager
def strace(pid: int, expression: str, log: Path) -> Generator[None]:
    """Trace process `pid` during the context."""
    argv = ["strace", "-p", str(pid), "-e", expression, "-o", str(log)]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        if "attached" not in line:
            pytest.skip(f"strace cannot trace the server here: {line.strip()}")
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate()


async def inject(
    pid: int, call: str, error: str, work: Work, check: Callable[[], Awaitable[None]], log: Path
) -> None:
    """Do `work` while one of the calls fails, for each of them, and `check` after each time."""
    with strace(pid, f"trace={call}", log):
        await work()
    await check()
    count = len(log.read_text().splitlines())
    for when in range(1, count + 1, -(-count // _MOST)):
        with strace(pid, f"inject={call}:error={error}:when={when}", log):
            async with asyncio.timeout(_HANG_SECONDS):
                await work()
        await check()
    await work(strict=True)


async def live_through(server: SandboxSessionServer, *, strict: bool = False) -> None:
    """Start a session, use all that it can do, and stop it. See `Work`."""
    tolerated = () if strict else (CellblockError,)
    session = SandboxSessionCodeExecutor(server=server, timeout=20)
    forks = list[SandboxSessionCodeExecutor]()
    try:
        await session.start()
        for step in (
            lambda: session.execute_code_blocks([CodeBlock("x = 1; print(x)", "python")]),
            lambda: session.checkpoint("first"),
            lambda: session.execute_code_blocks([CodeBlock("import os; os._exit(1)", "python")]),
            lambda: session.restore("first"),
            lambda: session.execute_code_blocks([CodeBlock("echo 1", "sh")]),
        ):
            with contextlib.suppress(*tolerated):
                await step()
        forks += await session.fork(1)
        await forks[0].execute_code_blocks([CodeBlock("x", "python")])
    except tolerated:
        pass
    finally:
        for executor in (*forks, session):
            await executor.stop()


@pytest.mark.parametrize(("process", "call", "error"), _FAULTS)
def test_a_fault_of_one_session_is_not_that_of_another(
    process: str, call: str, error: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with (
            SandboxSessionServer() as server,
            SandboxSessionCodeExecutor(server=server) as bystander,
        ):
            assert bystander._connection is not None
            await bystander.set("x", 41)

            async def check() -> None:
                await bystander.execute_code_blocks([CodeBlock("y = x + 1", "python")])
                assert await bystander.get("y") == 42

            pid = pid_of(bystander._connection.pid, process)
            work = functools.partial(live_through, server)
            await inject(pid, call, error, work, check, tmp_path / "log")

    asyncio.run(scenario())


async def run_twice(work_dir: Path, *, strict: bool = False) -> None:
    """Start an executor, run blocks, and stop it. See `Work`."""
    tolerated = () if strict else (CellblockError,)
    executor = SandboxCommandLineCodeExecutor(work_dir=work_dir, timeout=20)
    try:
        await executor.start()
        for _ in range(2):
            with contextlib.suppress(*tolerated):
                await executor.execute_code_blocks([CodeBlock("print(1)", "python")])
    except tolerated:
        pass
    finally:
        await executor.stop()


@pytest.mark.parametrize(("process", "call", "error"), _FAULTS)
def test_a_fault_of_one_executor_is_not_that_of_another(
    process: str, call: str, error: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with SandboxCommandLineCodeExecutor() as bystander:
            assert bystander._connection is not None

            async def check() -> None:
                result = await bystander.execute_code_blocks([CodeBlock("print(1)", "python")])
                assert result.output == "1\n"

            pid = pid_of(bystander._connection.pid, process)
            work = functools.partial(run_twice, tmp_path / "other")
            await inject(pid, call, error, work, check, tmp_path / "log")

    (tmp_path / "other").mkdir()
    asyncio.run(scenario())
