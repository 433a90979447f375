"""Executors with the same settings share a server, and nothing else: not what they see, and not each other's troubles."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Coroutine
from pathlib import Path
from typing import Any

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
from cellblock.backends.sandbox import SandboxPlace
from cellblock.events import Output
from cellblock.runtime.linux.process_tree import children, descendants

# A port that one executor's code listens on until it is told to end; the other's tries to come in.
LISTEN = """
import os, socket, time
with socket.create_server(("127.0.0.1", 4567)) as server:
    open("listening", "w").close()
    while not os.path.exists("done"):
        time.sleep(0.01)
"""
CONNECT = "import socket; socket.create_connection(('127.0.0.1', 4567)); print('came in')"


def server_of(executor: SandboxCommandLineCodeExecutor) -> int:
    assert executor._connection is not None
    return executor._connection.pid


async def run(
    executor: SandboxCommandLineCodeExecutor, code: str, language: str = "python"
) -> CodeResult:
    return await executor.execute_code_blocks([CodeBlock(code, language)])


@contextlib.asynccontextmanager
async def two(
    **settings: Any,
) -> AsyncGenerator[tuple[SandboxCommandLineCodeExecutor, SandboxCommandLineCodeExecutor]]:
    async with (
        SandboxCommandLineCodeExecutor(**settings) as one,
        SandboxCommandLineCodeExecutor(**settings) as other,
    ):
        assert server_of(one) == server_of(other)
        yield one, other


def zygote_of(server: int) -> int:
    """Give the first zygote, below which are those of the guests."""
    return max(children(server), key=lambda pid: len(descendants(pid)))


def by_age(pids: list[int]) -> list[int]:
    return sorted(pids, key=lambda pid: int(Path(f"/proc/{pid}/stat").read_text().split()[21]))


async def given_up(work: Coroutine[Any, Any, None], after: float) -> None:
    """Begin `work`, and cancel it after some seconds."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(after)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def eventually(what: str, is_so: Any) -> None:
    for _ in range(1000):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(what)


def test_each_sees_his_own_folders_alone() -> None:
    async def main() -> None:
        async with two() as (one, other):
            for folder in ("/workspace", "/home/cell", "/opt/env", "/tmp"):
                assert (await run(one, f"open('{folder}/mark', 'w').close()")).exit_code == 0
                assert (
                    "mark"
                    not in (await run(other, f"import os; print(os.listdir('{folder}'))")).output
                )
            assert "mark" in (await run(one, "import os; print(os.listdir())")).output
            assert (one.work_dir / "mark").exists()
            assert not (other.work_dir / "mark").exists()

    asyncio.run(main())


def test_each_sees_his_own_processes_alone() -> None:
    async def main() -> None:
        async with two() as (one, other):
            asleep = asyncio.ensure_future(
                run(one, "import time; open('here', 'w').close(); time.sleep(1)")
            )
            await eventually("nothing runs", (one.work_dir / "here").exists)
            seen = await run(
                other,
                "import os; print(sorted(int(name) for name in os.listdir('/proc') if name.isdecimal()))",
            )
            assert seen.output == "[1, 2]\n"
            await asleep

    asyncio.run(main())


@pytest.mark.parametrize("apart", [True, False])
def test_each_has_a_network_of_his_own(apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def together(place: SandboxPlace) -> dict[str, Any]:
        use = alone(place)
        return {**use, "zygote": {**use["zygote"], "own_network": ""}}

    alone = SandboxPlace._use
    if not apart:
        monkeypatch.setattr(SandboxPlace, "_use", together)

    async def main() -> None:
        async with two(policy=Policy(environment={"APART": str(apart)})) as (one, other):
            listening = asyncio.ensure_future(run(one, LISTEN))
            await eventually("nobody listens", (one.work_dir / "listening").exists)
            assert (await run(one, CONNECT)).output == "came in\n"
            came_in = (await run(other, CONNECT)).output == "came in\n"
            assert came_in is not apart, (
                "he does without a network of his own, and does not with one"
            )
            (one.work_dir / "done").touch()
            assert (await listening).exit_code == 0

    asyncio.run(main())


@pytest.mark.parametrize(
    "settings",
    [
        {"limits": Limits(memory_bytes=1 << 30)},
        {"policy": Policy(environment={"A": "B"})},
        {"policy": Policy(network="host")},
        {"preload": ["decimal"]},
    ],
    ids=["limits", "environment", "network", "preload"],
)
def test_who_has_other_settings_has_another_server(settings: dict[str, Any]) -> None:
    async def main() -> None:
        async with (
            SandboxCommandLineCodeExecutor() as one,
            SandboxCommandLineCodeExecutor(**settings) as other,
        ):
            assert server_of(one) != server_of(other)

    asyncio.run(main())


def test_a_folder_that_was_replaced_is_shown_as_it_is_now(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    policy = Policy(read_only=(Mount(str(given), "/data"),))

    async def main() -> None:
        async with SandboxCommandLineCodeExecutor(policy=policy):
            given.rename(tmp_path / "before")
            given.mkdir()
            (given / "new").touch()
            async with SandboxCommandLineCodeExecutor(policy=policy) as other:
                assert (
                    await run(other, "import os; print(os.listdir('/data'))")
                ).output == "['new']\n"

    asyncio.run(main())


def test_what_the_policy_shows_within_a_work_folder_is_there_for_each(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("given")
    shown = (
        Mount(str(tmp_path), "/workspace/deep/data"),
        Mount(str(tmp_path / "file"), "/home/cell/file"),
    )

    async def main() -> None:
        async with two(policy=Policy(read_only=shown)) as (one, other):
            for executor in (one, other):
                code = "print(open('deep/data/file').read(), open('/home/cell/file').read()); open('deep/data/x', 'w')"
                result = await run(executor, code)
                assert "given given" in result.output
                assert "Read-only" in result.output

    asyncio.run(main())


def test_one_who_leaves_takes_all_that_is_his_along_and_nothing_of_another() -> None:
    async def main() -> None:
        async with SandboxCommandLineCodeExecutor() as one:
            server = server_of(one)
            zygote = zygote_of(server)
            asleep = asyncio.ensure_future(run(one, "import time; time.sleep(3); print('woke')"))
            other = SandboxCommandLineCodeExecutor()
            await other.start()
            mine, his = by_age(children(zygote))
            cut = asyncio.ensure_future(run(other, "import time; time.sleep(60)"))
            await asyncio.sleep(0.3)
            below, scratch = [his, *descendants(his)], other.work_dir
            began = time.monotonic()
            await other.stop()
            assert time.monotonic() - began < 10
            assert not scratch.exists()
            assert not any(Path(f"/proc/{pid}").exists() for pid in below), (
                "stopped, and something of it lives"
            )
            with pytest.raises(BackendError):
                await cut
            assert children(zygote) == [mine]
            assert (await asleep).output == "woke\n"
        await eventually(
            "the server outlived the last one", lambda: not Path(f"/proc/{server}").exists()
        )

    asyncio.run(main())


def test_a_slow_reader_holds_up_nobody_else_and_loses_nothing() -> None:
    size = 400 << 20

    async def main() -> None:
        async with two(limits=Limits(output_bytes=None)) as (one, other):
            code = f"import sys; [sys.stdout.write('x' * (1 << 20)) for _ in range({size >> 20})]"
            stream = one.execute_stream([CodeBlock(code, "python")])
            got = 0
            async for event in stream:
                if isinstance(event, Output):
                    got += len(event.text)
                    break
            connection = one._connection
            await eventually("all is read", lambda: connection is not None and connection._paused)
            await asyncio.sleep(1)  # its output piles up, until its block has to wait
            status = Path(f"/proc/{server_of(one)}/status").read_text()
            assert int(status.split("VmRSS:")[1].split()[0]) < 150 << 10, (
                "the server keeps all of it"
            )
            for _ in range(20):
                assert (await asyncio.wait_for(run(other, "print('hi')"), 15)).output == "hi\n"
            async for event in stream:
                if isinstance(event, Output):
                    got += len(event.text)
            assert got == size

    asyncio.run(main())


def test_a_killed_server_is_lost_for_all_and_comes_back_for_all() -> None:
    async def main() -> None:
        async with two() as (one, other):
            killed = server_of(one)
            asleep = [
                asyncio.ensure_future(run(executor, "import time; time.sleep(60)"))
                for executor in (one, other)
            ]
            await asyncio.sleep(0.2)
            os.kill(killed, signal.SIGKILL)
            for task in asleep:
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

    asyncio.run(main())


def test_a_killed_zygote_is_the_loss_of_one() -> None:
    async def main() -> None:
        async with two() as (one, other):
            zygote = zygote_of(server_of(one))
            first, _ = by_age(children(zygote))
            os.kill(first, signal.SIGKILL)
            await eventually(
                "its end is not told of", lambda: not (one._connection and one._connection.is_open)
            )
            with pytest.raises(BackendError, match="forked from ended"):
                await run(one, "print(1)")
            assert (await run(other, "print(1)")).output == "1\n"
            await one.restart()
            assert server_of(one) == server_of(other)
            assert (await run(one, "print(1)")).output == "1\n"

    asyncio.run(main())


def test_who_has_more_cells_gets_no_more_than_his_share() -> None:
    async def calls(executor: SandboxCommandLineCodeExecutor, until: float) -> int:
        count = 0
        while time.monotonic() < until:
            assert (await run(executor, "print(1)")).exit_code == 0
            count += 1
        return count

    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            first, *others = [
                await stack.enter_async_context(SandboxCommandLineCodeExecutor()) for _ in range(5)
            ]
            await asyncio.gather(*(run(first, "import time; time.sleep(0.5)") for _ in range(16)))
            until = time.monotonic() + 3
            callers = [executor for executor in (first, *others) for _ in range(8)]
            counts = await asyncio.gather(*(calls(executor, until) for executor in callers))
            assert sum(counts[:8]) < 2 * sum(counts[8:]) / 4, counts

    asyncio.run(main())


def test_many_that_start_at_once_wait_for_one_server() -> None:
    async def main() -> None:
        executors = [SandboxCommandLineCodeExecutor() for _ in range(8)]
        results = await asyncio.gather(
            *(run(executor, f"print({number})") for number, executor in enumerate(executors))
        )
        assert [result.output for result in results] == [f"{number}\n" for number in range(8)]
        assert len({server_of(executor) for executor in executors}) == 1
        await asyncio.gather(*(executor.stop() for executor in executors))

    asyncio.run(main())
    assert not shared_server._servers


def test_one_server_has_no_more_guests_than_it_can_carry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_server, "_MOST", 2)

    async def main() -> None:
        async with (
            two(preload=["fractions"]) as (one, _),
            two(preload=["fractions"]) as (three, other),
        ):
            assert server_of(one) != server_of(three)
            assert (await run(other, "print(1)")).output == "1\n"

    asyncio.run(main())
    assert not shared_server._servers


def test_a_start_that_is_given_up_leaves_the_others_theirs() -> None:
    async def main() -> None:
        first, second = (SandboxCommandLineCodeExecutor(preload=["decimal"]) for _ in range(2))
        starting = asyncio.ensure_future(first.start())
        await asyncio.sleep(0.02)
        waiting = asyncio.ensure_future(run(second, "print(1)"))
        await asyncio.sleep(0.01)
        starting.cancel()
        assert (await waiting).output == "1\n"
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        await asyncio.gather(first.stop(), second.stop())

    asyncio.run(main())
    assert not shared_server._servers


def test_who_leaves_while_he_is_still_coming_in_leaves_nothing_behind() -> None:
    async def main() -> None:
        async with two() as (one, other):
            server = server_of(one)
            zygote = zygote_of(server)
            for executor in (one, other):  # which has its first cell from here on
                await run(executor, "print(1)")
            before = len(os.listdir(f"/proc/{server}/fd"))
            for moment in range(40):
                coming = SandboxCommandLineCodeExecutor()
                await given_up(coming.start(), moment / 2000)
                await coming.stop()
            await eventually("a zygote of his stays", lambda: len(children(zygote)) == 2)
            await eventually(
                "descriptors stay", lambda: len(os.listdir(f"/proc/{server}/fd")) <= before
            )
            assert (await run(one, "print(1)")).output == "1\n"

    asyncio.run(main())
    assert not shared_server._servers


def test_a_stop_that_is_given_up_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async def main() -> None:
        async with SandboxCommandLineCodeExecutor():
            for moment in range(20):
                leaving = SandboxCommandLineCodeExecutor()
                await leaving.start()
                await given_up(leaving.stop(), moment / 1000)
                await leaving.stop()

    asyncio.run(main())
    assert not list(tmp_path.iterdir())


def test_all_folders_go_when_their_owner_is_killed(tmp_path: Path) -> None:
    code = (
        "import os\nfrom cellblock import CodeBlock\nfrom cellblock.sync import SandboxCommandLineCodeExecutor as Sandbox\n"
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
    subprocess.run([sys.executable, "-c", code], env=environment, check=False)

    async def main() -> None:
        await eventually(f"left: {list(tmp_path.iterdir())}", lambda: not list(tmp_path.iterdir()))

    asyncio.run(main())
