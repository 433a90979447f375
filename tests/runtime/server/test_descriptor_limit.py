"""What the limit of open files cannot hold is refused by name, and nothing else ends."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from cellblock import CodeBlock, SandboxSessionCodeExecutor, SandboxSessionServer

pytestmark = pytest.mark.depends_on_user

PROGRAM = """
import asyncio, contextlib, resource, sys
from cellblock import *

kind, limit = sys.argv[1], int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

async def main():
    async with contextlib.AsyncExitStack() as stack:
        if kind == "sessions":
            server = await stack.enter_async_context(SandboxSessionServer())
            make = lambda: SandboxSessionCodeExecutor(server=server)
        else:
            make = SandboxCommandLineCodeExecutor
        executors = []
        while len(executors) < 200:
            try:
                executors.append(await stack.enter_async_context(make()))
            except ServerFull as error:
                print(error)
                break
            block = CodeBlock(f"x = {len(executors)}; print(x)", "python")
            assert (await executors[-1].execute_code_blocks([block])).exit_code == 0
        print(len(executors))
        for number, executor in enumerate(executors, 1):
            code = "print(x)" if kind == "sessions" else f"print({number})"
            result = await executor.execute_code_blocks([CodeBlock(code, "python")])
            assert result.output == f"{number}\\n", result
        for executor in executors[:4]:
            await executor.stop()
        async with make() as another:
            assert (await another.execute_code_blocks([CodeBlock("1", "python")])).exit_code == 0

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("kind", "limit", "at_least"),
    [
        ("sessions", 256, 20),
        ("executors", 256, 8),
        pytest.param("sessions", 1024, 100, marks=pytest.mark.slow),
    ],
)
def test_what_does_not_fit_is_refused_by_the_name_of_the_limit(
    kind: str, limit: int, at_least: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind, str(limit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    refusal, count = done.stdout.splitlines()
    assert "RLIMIT_NOFILE" in refusal
    assert int(count) >= at_least


def test_an_idle_session_holds_eight_descriptors_of_its_server_and_a_checkpoint_one() -> None:
    async def main() -> None:
        async with SandboxSessionServer() as server:

            async def open_session() -> SandboxSessionCodeExecutor:
                session = SandboxSessionCodeExecutor(server=server)
                await session.start()
                await session.execute_code_blocks([CodeBlock("x = 1", "python")])
                return session

            sessions = [await open_session()]
            assert sessions[0].place.connection is not None
            pid = sessions[0].place.connection.pid

            async def falls_to(count: int) -> None:
                while len(os.listdir(f"/proc/{pid}/fd")) > count:
                    await asyncio.sleep(0.02)

            first = await settled(pid)
            sessions += [await open_session() for _ in range(4)]
            await falls_to(first + 4 * 8)
            for number in range(5):
                await sessions[0].checkpoint(f"checkpoint {number}")
            await falls_to(first + 4 * 8 + 5)
            for session in sessions:
                await session.stop()

    asyncio.run(main())


async def settled(pid: int) -> int:
    """Return the number of descriptors of a process, once it has not changed for two seconds."""
    count, since = 0, 0.0
    while since < 2:
        now = len(os.listdir(f"/proc/{pid}/fd"))
        since = since + 0.05 if now == count else 0.0
        count = now
        await asyncio.sleep(0.05)
    return count
