"""If the server in a container is lost, its processes are killed and another server is started."""

from __future__ import annotations

import pytest

from cellblock import BackendError, CodeBlock, DockerCommandLineCodeExecutor
from cellblock.backends import connection
from cellblock.backends.connection import Connection
from cellblock.backends.container import ContainerBackend
from cellblock.containers.container import Container
from cellblock.events import Event, Output
from cellblock.results import fold
from tests.executors.blocks import run
from tests.suite.tiers import exhaustive

pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.usefixtures("image")]


async def test_a_block_that_kills_the_server_is_reported_and_the_container_keeps_running(
    image: str,
) -> None:
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
        states = "cat /proc/[0-9]*/stat | sed 's/.*) //; s/ .*//' | tr -d '\\n'"
        assert "Z" not in (await run(executor, states, "sh")).output, "zombies are left"


@pytest.mark.parametrize("rest", exhaustive(["", "; import time; time.sleep(60)"]))
async def test_a_block_that_ends_process_1_costs_one_block(image: str, rest: str) -> None:
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


@pytest.mark.parametrize("fails", ["killing its processes", "starting a server"])
async def test_a_container_that_cannot_be_used_on_is_restarted(
    image: str, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    open_backend, failures = ContainerBackend.open, list[str]()

    async def refuse(container: Container) -> None:
        failures.append("no more processes")
        raise BackendError(failures[0])

    async def fail_at_first(backend: ContainerBackend) -> Connection:
        if not failures:
            failures.append("cannot exec in a stopped state")  # a message of a busy engine
            raise BackendError(failures[0])
        return await open_backend(backend)

    async with DockerCommandLineCodeExecutor(image) as executor:
        if fails == "starting a server":
            monkeypatch.setattr(ContainerBackend, "open", fail_at_first)
        else:
            monkeypatch.setattr(Container, Container.kill_processes.__name__, refuse)
        result = await run(executor, "import os; os.kill(-1, 9)")
        # It can be restarted or replaced.
        assert "stopped responding: the container was " in result.output
        assert (await run(executor, "print(1)")).output == "1\n"
    assert failures


async def test_a_server_that_does_not_respond_is_replaced(
    image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_PING_INTERVAL", 0.2)
    monkeypatch.setattr(connection, "_PONG_SECONDS", 1.0)
    async with DockerCommandLineCodeExecutor(image) as executor:
        code = "import os, signal\nfor pid in map(int, filter(str.isdigit, os.listdir('/proc'))):\n"
        code += "    if pid not in (1, os.getpid()): os.kill(pid, signal.SIGSTOP)\nwhile True: pass"
        result = await run(executor, code)
        assert (result.exit_code, result.outcome) == (137, "killed"), result
        assert (await run(executor, "print('again')")).output == "again\n"
