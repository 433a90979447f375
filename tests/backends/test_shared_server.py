"""Executors with equal settings share a server, but see and affect nothing of each other."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Coroutine, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cellblock import (
    BackendError,
    CodeBlock,
    CodeResult,
    Limits,
    Mount,
    Policy,
    SandboxCommandLineCodeExecutor,
)
from cellblock.backends import shared_server
from cellblock.backends.sandbox import SandboxBackend
from cellblock.events import Output
from cellblock.runtime.linux.process_tree import children, descendants
from cellblock.runtime.spec import ServerSpec

pytestmark = pytest.mark.depends_on_user

# One executor's code listens on a port until the file `done` exists; the other's code connects.
LISTEN = """
import os, socket, time
with socket.create_server(("127.0.0.1", 4567)) as server:
    open("listening", "w").close()
    while not os.path.exists("done"):
        time.sleep(0.01)
"""
# Waits until the file `go` exists.
WAIT = """
import os, time
open("here", "w").close()
while not os.path.exists("go"):
    time.sleep(0.01)
print("went on")
"""
CONNECT = "import socket; socket.create_connection(('127.0.0.1', 4567)); print('connected')"


def tenant(**settings: Any) -> SandboxCommandLineCodeExecutor:
    return SandboxCommandLineCodeExecutor(**settings)


def server_of(executor: SandboxCommandLineCodeExecutor) -> int:
    assert executor.place.connection is not None
    return executor.place.connection.pid


async def run(
    executor: SandboxCommandLineCodeExecutor, code: str, language: str = "python"
) -> CodeResult:
    return await executor.execute_code_blocks([CodeBlock(code, language)])


def own_settings() -> dict[str, Any]:
    """Return settings that no executor of another test has: ours share a server of their own."""
    return {"policy": Policy(environment={"TEST": uuid4().hex})}


@pytest.fixture(autouse=True)
def _no_server_is_left() -> Iterator[None]:
    before = set(shared_server._servers)
    yield
    assert set(shared_server._servers) <= before


@contextlib.asynccontextmanager
async def two_tenants(
    **settings: Any,
) -> AsyncGenerator[tuple[SandboxCommandLineCodeExecutor, SandboxCommandLineCodeExecutor]]:
    settings = {**own_settings(), **settings}
    async with tenant(**settings) as one, tenant(**settings) as other:
        assert server_of(one) == server_of(other)
        yield one, other


def zygote_of(server: int) -> int:
    """Return the first zygote, the parent of the tenants' zygotes."""
    return max(children(server), key=lambda pid: len(descendants(pid)))


def by_age(pids: list[int]) -> list[int]:
    return sorted(pids, key=lambda pid: int(Path(f"/proc/{pid}/stat").read_text().split()[21]))


async def start_and_cancel(work: Coroutine[Any, Any, None], seconds: float) -> None:
    """Start `work` and cancel it after `seconds`."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(seconds)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def wait_until(failure: str, condition: Any) -> None:
    for _ in range(4000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(failure)


async def until_it_waits(executor: SandboxCommandLineCodeExecutor) -> None:
    """Wait until the block `WAIT` runs."""
    await wait_until("nothing runs", (executor.work_dir / "here").exists)


async def test_tenant_sees_only_its_own_folders() -> None:
    async with two_tenants() as (one, other):
        for folder in ("/workspace", "/home/cell", "/opt/env", "/tmp"):
            assert (await run(one, f"open('{folder}/mark', 'w').close()")).exit_code == 0
            assert (
                "mark" not in (await run(other, f"import os; print(os.listdir('{folder}'))")).output
            )
        assert "mark" in (await run(one, "import os; print(os.listdir())")).output
        assert (one.work_dir / "mark").exists()
        assert not (other.work_dir / "mark").exists()


async def test_tenant_sees_only_its_own_processes() -> None:
    async with two_tenants() as (one, other):
        waiting = asyncio.ensure_future(run(one, WAIT))
        await until_it_waits(one)
        seen = await run(
            other,
            (
                "import os; "
                "print(sorted(int(pid) for pid in os.listdir('/proc') if pid.isdecimal()))"
            ),
        )
        assert seen.output == "[1, 2]\n"
        (one.work_dir / "go").touch()
        assert (await waiting).output == "went on\n"


@pytest.mark.parametrize("is_separate", [True, False])
async def test_tenant_has_its_own_network(
    is_separate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_own_network(backend: SandboxBackend, spec: ServerSpec) -> ServerSpec:
        spec = original(backend, spec)
        return spec._replace(zygote=spec.zygote._replace(own_network=""))

    original = SandboxBackend._with_role
    if not is_separate:
        monkeypatch.setattr(SandboxBackend, "_with_role", without_own_network)

    async with two_tenants(policy=Policy(environment={"SEPARATE": str(is_separate)})) as (
        one,
        other,
    ):
        listening = asyncio.ensure_future(run(one, LISTEN))
        await wait_until("nothing listens", (one.work_dir / "listening").exists)
        assert (await run(one, CONNECT)).output == "connected\n"
        connected = (await run(other, CONNECT)).output == "connected\n"
        assert connected is not is_separate, "it connects without its own network, and not with one"
        (one.work_dir / "done").touch()
        assert (await listening).exit_code == 0


async def test_other_settings_start_another_server() -> None:
    others: list[dict[str, Any]] = [
        {"limits": Limits(memory_bytes=1 << 30)},
        {"policy": Policy(environment={"A": "B"})},
        {"policy": Policy(network="host")},
        {"preload": ["decimal"]},
    ]
    async with contextlib.AsyncExitStack() as stack:
        executors = [await stack.enter_async_context(tenant(**one)) for one in ({}, *others)]
        assert len({server_of(executor) for executor in executors}) == len(executors)


async def test_replaced_folder_is_mounted_in_its_new_state(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    policy = Policy(read_only=(Mount(str(given), "/data"),))

    async with tenant(policy=policy):
        given.rename(tmp_path / "before")
        given.mkdir()
        (given / "new").touch()
        async with tenant(policy=policy) as other:
            assert (await run(other, "import os; print(os.listdir('/data'))")).output == "['new']\n"


async def test_policy_mounts_below_the_work_folder_are_visible_to_each_tenant(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("given")
    shown = (
        Mount(str(tmp_path), "/workspace/deep/data"),
        Mount(str(tmp_path / "file"), "/home/cell/file"),
    )

    async with two_tenants(policy=Policy(read_only=shown)) as (one, other):
        for executor in (one, other):
            code = (
                "print(open('deep/data/file').read(), open('/home/cell/file').read())\n"
                "open('deep/data/x', 'w')"
            )
            result = await run(executor, code)
            assert "given given" in result.output
            assert "Read-only" in result.output


async def test_stopped_tenant_leaves_nothing_and_does_not_affect_another() -> None:
    settings = own_settings()
    async with tenant(**settings) as one:
        server = server_of(one)
        zygote = zygote_of(server)
        waiting = asyncio.ensure_future(run(one, WAIT))
        other = tenant(**settings)
        await other.start()
        one_zygote, other_zygote = by_age(children(zygote))
        ended = asyncio.ensure_future(run(other, WAIT))
        await until_it_waits(one)
        await until_it_waits(other)
        processes, scratch = [other_zygote, *descendants(other_zygote)], other.work_dir
        await other.stop()
        assert not scratch.exists()
        assert not any(Path(f"/proc/{pid}").exists() for pid in processes), (
            "it stopped, but a process is left"
        )
        with pytest.raises(BackendError):
            await ended
        assert children(zygote) == [one_zygote]
        (one.work_dir / "go").touch()
        assert (await waiting).output == "went on\n"
    await wait_until(
        "the server outlives the last tenant", lambda: not Path(f"/proc/{server}").exists()
    )


@pytest.mark.slow
async def test_slow_reader_does_not_delay_others_and_loses_nothing() -> None:
    pieces, size = 2600, 1 << 16  # by turns of two streams, so that each is a frame
    async with two_tenants(limits=Limits(output_bytes=None)) as (one, other):
        code = f"import os\nfor n in range({pieces}): os.write(1 + n % 2, b'x' * {size})"
        stream = one.execute_stream([CodeBlock(code, "python")])
        got = 0
        async for event in stream:
            if isinstance(event, Output):
                got += len(event.text)
                break
        connection = one.place.connection
        await wait_until(
            "reading is never paused", lambda: connection is not None and connection._paused
        )
        for _ in range(20):
            assert (await run(other, "print('hi')")).output == "hi\n"
        status = Path(f"/proc/{server_of(one)}/status").read_text()
        assert int(status.split("VmHWM:")[1].split()[0]) < 150 << 10, (
            "the server keeps all of the output"
        )
        async for event in stream:
            if isinstance(event, Output):
                got += len(event.text)
        assert got == pieces * size


async def test_all_tenants_lose_a_killed_server_and_can_restart() -> None:
    async with two_tenants() as (one, other):
        killed = server_of(one)
        waiting = [asyncio.ensure_future(run(executor, WAIT)) for executor in (one, other)]
        await until_it_waits(one)
        await until_it_waits(other)
        os.kill(killed, signal.SIGKILL)
        for task in waiting:
            with pytest.raises(BackendError):
                await task
        await one.restart()
        assert (await run(one, "print(1)")).output == "1\n"
        await other.restart()
        assert server_of(one) == server_of(other) != killed
        assert [(await run(executor, "print(1)")).output for executor in (one, other)] == [
            "1\n",
            "1\n",
        ]


async def test_killed_zygote_affects_only_its_tenant() -> None:
    async with two_tenants() as (one, other):
        zygote = zygote_of(server_of(one))
        first, _ = by_age(children(zygote))
        os.kill(first, signal.SIGKILL)
        await wait_until(
            "its end is not reported",
            lambda: not (one.place.connection and one.place.connection.is_open),
        )
        assert (await run(other, "print(1)")).output == "1\n"
        assert (await run(one, "print(1)")).output == "1\n"  # in a new zygote
        assert server_of(one) == server_of(other)
        assert (await run(one, "print(1)")).output == "1\n"


async def test_concurrent_starts_share_one_server() -> None:
    settings = own_settings()
    executors = [tenant(**settings) for _ in range(8)]
    results = await asyncio.gather(
        *(run(executor, f"print({number})") for number, executor in enumerate(executors))
    )
    assert [result.output for result in results] == [f"{number}\n" for number in range(8)]
    assert len({server_of(executor) for executor in executors}) == 1
    await asyncio.gather(*(executor.stop() for executor in executors))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts filesystems")
async def test_a_later_mount_over_a_work_folder_is_what_its_blocks_see(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "hidden").mkdir(parents=True)
    mount = ["mount", "-t", "ramfs", "ramfs", work]

    settings = own_settings()
    async with two_tenants(**settings):
        await asyncio.to_thread(subprocess.run, mount, check=True)
        try:
            async with tenant(work_dir=work, **settings) as executor:
                result = await run(executor, "import os; print(os.path.exists('hidden'))")
        finally:
            await asyncio.to_thread(subprocess.run, ["umount", work], check=True)
    assert result.output == "False\n"


async def test_number_of_tenants_of_one_server_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_server, "_MAX_TENANTS", 2)

    settings = own_settings()
    async with two_tenants(**settings) as (one, _), two_tenants(**settings) as (three, other):
        assert server_of(one) != server_of(three)
        assert (await run(other, "print(1)")).output == "1\n"


async def test_cancelled_start_does_not_affect_other_tenants() -> None:
    before = len(shared_server._servers)
    settings = own_settings()
    first, second = (tenant(**settings) for _ in range(2))
    starting = asyncio.ensure_future(first.start())
    await wait_until("no server starts", lambda: len(shared_server._servers) > before)
    waiting = asyncio.ensure_future(run(second, "print(1)"))
    for _ in range(5):
        await asyncio.sleep(0)
    starting.cancel()
    assert (await waiting).output == "1\n"
    with contextlib.suppress(asyncio.CancelledError):
        await starting
    await asyncio.gather(first.stop(), second.stop())


async def test_tenant_that_stops_during_its_start_leaves_nothing() -> None:
    settings = own_settings()
    async with two_tenants(**settings) as (one, other):
        server = server_of(one)
        zygote = zygote_of(server)
        for executor in (one, other):  # so that each has its first cell
            await run(executor, "print(1)")
        before = len(os.listdir(f"/proc/{server}/fd"))
        for moment in range(20):
            starting = tenant(**settings)
            await start_and_cancel(starting.start(), moment / 1000)
            await starting.stop()
        await wait_until("a zygote is left", lambda: len(children(zygote)) == 2)
        await wait_until(
            "descriptors are left", lambda: len(os.listdir(f"/proc/{server}/fd")) <= before
        )
        assert (await run(one, "print(1)")).output == "1\n"


async def test_cancelled_stop_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    settings = own_settings()
    async with tenant(**settings):
        for moment in range(20):
            stopping = tenant(**settings)
            await stopping.start()
            await start_and_cancel(stopping.stop(), moment / 1000)
            await stopping.stop()
    assert not list(tmp_path.iterdir())


async def test_all_folders_are_removed_when_the_caller_is_killed(tmp_path: Path) -> None:
    code = (
        "import os\nfrom cellblock import CodeBlock\n"
        "from cellblock.sync import SandboxCommandLineCodeExecutor as Sandbox\n"
        "with Sandbox() as one, Sandbox() as two, Sandbox() as three:\n"
        "    for executor in (one, two, three):\n"
        "        executor.execute_code_blocks([CodeBlock('open(\"x\", \"w\")', 'python')])\n"
        "    three.stop()\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "TMPDIR": str(tmp_path),
    }
    argv = [sys.executable, "-c", code]
    await asyncio.to_thread(subprocess.run, argv, env=environment, check=False)
    await wait_until(f"left: {list(tmp_path.iterdir())}", lambda: not list(tmp_path.iterdir()))
