"""Sessions with the same settings share a server, but no failure of one reaches another."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cellblock import (
    BackendLost,
    CodeBlock,
    ExecutorStopped,
    Limits,
    Policy,
    SandboxSessionCodeExecutor,
)
from cellblock.runtime.linux.process_tree import descendants
from cellblock.sandbox import cgroups

pytestmark = pytest.mark.depends_on_user

# Without control groups, all sessions of a server are counted together.
LIMITS = Limits(processes=None)


def own_policy() -> Policy:
    """Return a policy that no session of another test has."""
    return Policy(environment={"TEST": uuid4().hex})


@contextlib.asynccontextmanager
async def sessions(count: int, **settings: Any) -> AsyncGenerator[list[SandboxSessionCodeExecutor]]:
    """Start sessions with the same settings, all at once."""
    settings = {"limits": LIMITS, "policy": own_policy(), **settings}
    made = [SandboxSessionCodeExecutor(**settings) for _ in range(count)]
    try:
        await asyncio.gather(*(session.start() for session in made))
        yield made
    finally:
        await asyncio.gather(*(session.stop() for session in made))


def server_of(session: SandboxSessionCodeExecutor) -> int:
    return session.place.require_connection().pid


def holders(server: int, name: str) -> list[int]:
    """Return the processes of a server that have a file open whose name ends with `name`."""
    found = list[int]()
    for pid in descendants(server):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            links = [os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()]
            found += [pid for link in links if link.endswith(name)]
    return found


async def output_of(session: SandboxSessionCodeExecutor, code: str) -> str:
    return (await session.execute_code_blocks([CodeBlock(code, "python")])).output


async def wait_for_end(pid: int) -> None:
    while os.path.exists(f"/proc/{pid}"):
        await asyncio.sleep(0.01)


async def test_the_first_session_starts_the_server_and_the_last_one_ends_it() -> None:
    async with sessions(3) as (one, other, third):
        server = server_of(one)
        assert {server_of(other), server_of(third)} == {server}
        await output_of(one, "x = 1")
        assert "NameError" in await output_of(other, "x")
        await one.stop()
        await third.stop()
        assert await output_of(other, "1 + 1") == "2\n"
    await wait_for_end(server)


def test_sessions_of_other_settings_or_groups_have_another_server() -> None:
    settings: dict[str, Any] = {"limits": LIMITS, "policy": own_policy()}
    others: list[dict[str, Any]] = [
        {},
        {"preload": ["json"]},
        {"limits": Limits(memory_bytes=1 << 30)},
        {},
    ]
    made = [SandboxSessionCodeExecutor(**{**settings, **other}) for other in others]
    made[-1].place.sharing_group = "another key"

    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            for session in made:
                await stack.enter_async_context(session)
            assert len({server_of(session) for session in made}) == len(made)

    asyncio.run(main())


def test_sessions_that_would_be_counted_together_have_servers_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cgroups, "find_cgroups", lambda: cgroups.CgroupSupport(0, "none in a test"))

    async def main() -> None:
        async with sessions(2, limits=Limits(processes=50)) as (one, two):
            assert server_of(one) != server_of(two)

    asyncio.run(main())


async def test_a_session_that_fails_leaves_the_others() -> None:
    async with sessions(2) as (one, other):
        await output_of(other, "kept = 1")
        for failure in ("os._exit(1)", "os.kill(os.getpid(), 9)", "x = bytearray(1 << 40)"):
            await output_of(one, f"import os; {failure}")
            assert await output_of(other, "kept") == "1\n", failure
            assert await output_of(one, "2") == "2\n", failure


async def test_after_the_loss_of_a_server_sessions_start_another_one() -> None:
    async with sessions(2) as (one, other):
        lost = server_of(one)
        os.kill(lost, signal.SIGKILL)
        for session in (one, other):
            with pytest.raises(BackendLost):
                await output_of(session, "1")
            await session.restart()
        assert server_of(one) == server_of(other) != lost
        assert await output_of(one, "1") == "1\n"


async def test_a_session_that_nobody_stops_ends_when_it_is_collected() -> None:
    policy = own_policy()
    async with sessions(1, policy=policy) as (one,):
        server = server_of(one)
        lost = SandboxSessionCodeExecutor(limits=LIMITS, policy=policy)
        await output_of(lost, "1")
        assert server_of(lost) == server
        folder = lost.place.scratch
        assert folder is not None
        del lost
        gc.collect()
        while folder.exists():  # the last step of its end
            await asyncio.sleep(0.01)
        assert await output_of(one, "1") == "1\n"
    await wait_for_end(server)


async def test_stopping_a_session_ends_its_block_in_another_language() -> None:
    async with sessions(2) as (session, other):
        folder, server = session.work_dir, server_of(other)
        code = "exec 3> held.txt; echo > started.txt; sleep 1000"
        block = asyncio.create_task(session.execute_code_blocks([CodeBlock(code, "sh")]))
        while not (folder / "started.txt").exists():
            await asyncio.sleep(0.01)
        (process, *_) = holders(server, "held.txt")
        await session.stop()
        with pytest.raises(ExecutorStopped):
            await block
        await wait_for_end(process)
        # And one that has not begun yet.
        await session.start()
        events = session.execute_stream([CodeBlock("sleep 1000", "sh")])
        await anext(events)  # `Started` comes before the request
        following = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        await session.stop()
        with pytest.raises(ExecutorStopped):
            await following
        assert await output_of(other, "1") == "1\n"
