"""If the server in a container is lost, its processes are killed and another server is started."""

from __future__ import annotations

import asyncio

import pytest

from cellblock import BackendError, CodeBlock, DockerCommandLineCodeExecutor
from cellblock.backends import connection
from cellblock.backends.connection import Connection
from cellblock.backends.container import ContainerBackend
from cellblock.containers.container import Container
from cellblock.events import Event, Output
from cellblock.results import fold
from tests.containers import docker_engine
from tests.executors.command_line.test_docker_endings import run

pytestmark = pytest.mark.engine


@pytest.fixture(autouse=True)
def image(monkeypatch: pytest.MonkeyPatch) -> str:
    return docker_engine.use_shared_engine(monkeypatch, "python")


def test_a_block_that_kills_the_server_is_reported_and_the_container_keeps_running(
    image: str,
) -> None:
    async def main() -> None:
        async with DockerCommandLineCodeExecutor(image) as executor:
            await run(executor, "open('kept', 'w').write('x'); open('/tmp/kept', 'w').write('y')")
            code = "print('before', flush=True); import os\nwhile not os.path.exists('go'): pass\n"
            code += "os.kill(-1, 9)"
            events = list[Event]()
            async for event in executor.execute_stream([CodeBlock(code, "python")]):
                events.append(event)
                if isinstance(event, Output):
                    (executor.work_dir / "go").touch()
            result = fold(events)
            assert (result.exit_code, result.outcome) == (137, "killed"), result
            assert result.output.startswith("before\n")
            assert "all processes in the container were killed" in result.output
            after = await run(executor, "print(open('kept').read(), open('/tmp/kept').read())")
            assert after.output == "x y\n"

    asyncio.run(main())


ENDINGS = {"at once": "", "while it runs": "; import time; time.sleep(60)"}


@pytest.mark.parametrize("rest", ENDINGS.values(), ids=ENDINGS)
def test_a_block_that_ends_process_1_costs_one_block(image: str, rest: str) -> None:
    async def main() -> None:
        async with DockerCommandLineCodeExecutor(image) as executor:
            await run(executor, "open('kept', 'w').write('x')")
            lost = await run(executor, f"import os; os.kill(1, 15){rest}")
            # If the block is faster than process 1, the end costs one of the next blocks.
            while lost.exit_code == 0 and not rest:
                lost = await run(executor, "print(open('kept').read())")
            assert (lost.exit_code, lost.outcome) == (137, "killed"), lost
            assert "was replaced by a new one" in lost.output
            later = [await run(executor, "print(open('kept').read())") for _ in range(4)]
            assert [result.output for result in later] == ["x\n"] * 4

    asyncio.run(main())


def test_processes_killed_with_the_server_leave_no_zombies(image: str) -> None:
    states = (
        "import glob; print({open(f).read().rpartition(')')[2].split()[0] for f in "
        "glob.glob('/proc/[0-9]*/stat')})"
    )

    async def main() -> None:
        async with DockerCommandLineCodeExecutor(image) as executor:
            await run(executor, "import os; os.kill(-1, 9)")
            assert "Z" not in (await run(executor, states)).output

    asyncio.run(main())


def test_a_container_at_its_process_limit_is_restarted(
    image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(container: Container) -> None:
        raise BackendError("no more processes")

    async def main() -> None:
        async with DockerCommandLineCodeExecutor(image) as executor:
            monkeypatch.setattr(Container, Container.kill_processes.__name__, refused)
            assert (
                "stopped responding: the container was "
                in (await run(executor, "import os; os.kill(-1, 9)")).output
            )
            assert (await run(executor, "print(1)")).output == "1\n"

    asyncio.run(main())


def test_a_container_in_which_no_server_starts_is_restarted(
    image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_backend, failures = ContainerBackend.open, list[str]()

    async def fail_at_first(backend: ContainerBackend) -> Connection:
        if not failures:
            failures.append("cannot exec in a stopped state")  # a message of a busy engine
            raise BackendError(failures[0])
        return await open_backend(backend)

    async def main() -> None:
        async with DockerCommandLineCodeExecutor(image) as executor:
            monkeypatch.setattr(ContainerBackend, "open", fail_at_first)
            result = await run(executor, "import os; os.kill(-1, 9)")
            # It can be restarted or replaced.
            assert "stopped responding: the container was " in result.output
            assert (await run(executor, "print(1)")).output == "1\n"

    asyncio.run(main())
    assert failures


def test_a_server_that_does_not_respond_is_replaced(
    image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_PING_INTERVAL", 0.2)
    monkeypatch.setattr(connection, "_PONG_SECONDS", 1.0)

    async def main() -> None:
        async with DockerCommandLineCodeExecutor(image) as executor:
            code = (
                "import os, signal\nfor pid in map(int, filter(str.isdigit, "
                "os.listdir('/proc'))):\n"
            )
            code += (
                "    if pid not in (1, os.getpid()): os.kill(pid, signal.SIGSTOP)\nwhile True: pass"
            )
            result = await run(executor, code)
            assert (result.exit_code, result.outcome) == (137, "killed"), result
            assert (await run(executor, "print('again')")).output == "again\n"

    asyncio.run(main())
