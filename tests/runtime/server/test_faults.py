"""One fault, one victim: a system call of the server fails while it works for one executor.

strace makes the call fail. A bystander on the same server keeps its variables, and nothing hangs.

No choice is left to chance: the default tier has fixed calls, `--all` some of each kind that are
spread evenly, and CELLBLOCK_TEST_FAULTS=all each single call, which takes an hour.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import itertools
import os
import re
import shutil
import signal
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cellblock import (
    CodeBlock,
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
    SandboxSessionServer,
)
from cellblock.errors import CellblockError
from cellblock.runtime.linux import process_tree

pytestmark = [pytest.mark.skipif(shutil.which("strace") is None, reason="strace is missing")]

# What the kernel may answer, by system call. The calls that are missing here cannot fail like this.
_FAULTS = [
    ("server", "EMFILE", "openat socketpair pipe2 fcntl pidfd_open"),
    ("server", "ENOMEM", "openat read pread64 getdents64 newfstatat statfs"),
    ("server", "ENOMEM", "recvmsg sendmsg sendto setsockopt epoll_wait epoll_ctl poll"),
    ("server", "ENOSPC", "epoll_ctl mkdir write pwrite64 linkat"),
    ("server", "EAGAIN", "recvmsg sendmsg sendto write"),
    ("zygote", "ENOMEM", "clone unshare setns recvmsg"),
    ("broker", "ENOMEM", "open_tree mount_setattr sendmsg recvfrom"),
    ("broker", "EMFILE", "openat"),
]
# One fault of each process, for the default tier.
_FIXED = [
    ("server", "socketpair:error=EMFILE:when=1"),
    ("server", "sendmsg:error=ENOMEM:when=2"),
    ("zygote", "clone:error=ENOMEM:when=1"),
    ("broker", "open_tree:error=ENOMEM:when=1"),
]
_MOST = None if os.environ.get("CELLBLOCK_TEST_FAULTS") == "all" else 12  # calls of one kind
_HANG_SECONDS = 100

Work = Callable[[], Awaitable[None]]


class Scene:
    """A server with a bystander, whose state `check` looks at, and the `work` of a victim.

    With `strict`, the victim's work must succeed.
    """

    def __init__(self, bystander_pid: int, work: Callable[[bool], Awaitable[None]], check: Work):
        self.server_pid, self.work, self.check = bystander_pid, work, check

    def pid_of(self, process: str) -> int:
        """Return the process ID of the server, or of its zygote or mount broker."""
        children = process_tree.children(self.server_pid)
        zygote = next(pid for pid in children if process_tree.pid_in_namespace(pid) == 1)
        broker = next(pid for pid in children if pid != zygote)
        return {"server": self.server_pid, "zygote": zygote, "broker": broker}[process]


@contextlib.contextmanager
def strace(pid: int, *options: str) -> Generator[None]:
    """Trace process `pid` during the context."""
    argv = ["strace", "-p", str(pid), *options]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        if "not permitted" in line:
            pytest.skip(f"strace cannot trace the server here: {line.strip()}")
        assert "attached" in line, line
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate()


async def count_calls(pid: int, scene: Scene, log: Path) -> collections.Counter[str]:
    """Return how often process `pid` makes each system call during the work."""
    with strace(pid, "-o", str(log)):
        await scene.work(True)
    return collections.Counter(re.findall(r"^(\w+)\(", log.read_text(errors="replace"), re.M))


def injections(calls: str, error: str, counts: collections.Counter[str]) -> Iterator[str]:
    """Yield what strace is to inject, for each kind of call that is made."""
    for call in calls.split():
        count = counts[call]
        for number in range(1, count + 1, max(1, count // (_MOST or count or 1))):
            yield f"{call}:error={error}:when={number}"
        if error == "EMFILE" and count:
            yield f"{call}:error={error}:when=1+"  # from the first one on
        if count and call != "epoll_wait":
            yield f"{call}:error={error}:when={1 + count // 2}+3"  # and every third after it


async def inject(scene: Scene, process: str, injections: Iterable[str]) -> None:
    """Let calls of a process fail during the victim's work, one after the other."""
    for injection in injections:
        try:
            with strace(scene.pid_of(process), "-o", "/dev/null", "-e", f"inject={injection}"):
                async with asyncio.timeout(_HANG_SECONDS):
                    await scene.work(False)
            await scene.check()
        except BaseException as failure:
            failure.add_note(injection)
            raise


async def live_through(server: SandboxSessionServer, strict: bool) -> None:
    """Start a session, use all that it can do, and stop it."""
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


@contextlib.asynccontextmanager
async def sessions(_work_dir: Path) -> AsyncGenerator[Scene]:
    """Serve a session whose variable stays, and sessions that are victims."""
    async with (
        SandboxSessionServer() as server,
        SandboxSessionCodeExecutor(server=server) as bystander,
    ):
        await bystander.set("x", 41)

        async def check() -> None:
            await bystander.execute_code_blocks([CodeBlock("y = x + 1", "python")])
            assert await bystander.get("y") == 42

        assert bystander.place.connection is not None
        yield Scene(bystander.place.connection.pid, functools.partial(live_through, server), check)


async def run_twice(work_dir: Path, strict: bool) -> None:
    """Start an executor, run blocks, and stop it."""
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


@contextlib.asynccontextmanager
async def executors(work_dir: Path) -> AsyncGenerator[Scene]:
    """Serve an executor that goes on, and executors that are victims."""
    async with SandboxCommandLineCodeExecutor() as bystander:

        async def check() -> None:
            result = await bystander.execute_code_blocks([CodeBlock("print(1)", "python")])
            assert result.output == "1\n"

        assert bystander.place.connection is not None
        yield Scene(bystander.place.connection.pid, functools.partial(run_twice, work_dir), check)


MakeScene = Callable[[Path], contextlib.AbstractAsyncContextManager[Scene]]


@pytest.mark.parametrize("make_scene", [sessions, executors])
async def test_a_fault_of_a_fixed_call_reaches_nobody_else(
    make_scene: MakeScene, tmp_path: Path
) -> None:
    async with make_scene(tmp_path) as scene:
        for process, injection in _FIXED:
            await inject(scene, process, [injection])
        await scene.work(True)


async def test_a_session_survives_that_its_answer_cannot_be_received_at_once(
    tmp_path: Path,
) -> None:
    async with sessions(tmp_path) as scene:
        option = "inject=recvmsg:error=ENOMEM:when=1..3"
        with strace(scene.server_pid, "-o", "/dev/null", "-e", option):
            await scene.check()


def _cases() -> Iterator[Any]:
    for make_scene, fault in itertools.product((executors, sessions), _FAULTS):
        is_expensive, is_further = fault[0] == "server", make_scene is sessions
        mark = pytest.mark.slow if is_expensive else pytest.mark.exhaustive if is_further else ()
        yield pytest.param(make_scene, *fault, marks=mark)


@pytest.mark.parametrize(("make_scene", "process", "error", "calls"), [*_cases()])
async def test_a_fault_of_any_call_reaches_nobody_else(
    make_scene: MakeScene, process: str, error: str, calls: str, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    async with make_scene(tmp_path / "other") as scene:
        counts = await count_calls(scene.pid_of(process), scene, tmp_path / "log")
        chosen = injections(calls, error, counts)
        await inject(scene, process, chosen)
        await scene.work(True)
