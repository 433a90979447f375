"""An engine that is reached over TCP and cannot mount local folders, like a remote one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from cellblock import (
    BackendError,
    CodeBlock,
    ContainerEngineUnavailable,
    DockerCommandLineCodeExecutor,
)
from cellblock.containers.container import Container
from cellblock.events import Event, Output
from cellblock.results import CommandLineCodeResult, fold
from tests.containers import docker_engine
from tests.executors.blocks import run
from tests.suite.tiers import exhaustive

pytestmark = [pytest.mark.engine, pytest.mark.slow]


class TcpForwarder:
    """Forward TCP connections to the test engine."""

    def __init__(self) -> None:
        self.connections_to_refuse = 0
        self._ends = set[asyncio.StreamWriter]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward data in both directions until both sides have closed."""
        if self.connections_to_refuse:
            self.connections_to_refuse -= 1
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_unix_connection(
            docker_engine.shared_engine().host.removeprefix("unix://")
        )
        self._ends |= {writer, far_writer}
        # Python 3.11 logs an error for a handler that the end of the loop cancels.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(_pass(reader, far_writer), _pass(far_reader, writer))

    def cut(self) -> None:
        """Break all connections."""
        for end in self._ends:
            end.transport.abort()
        self._ends.clear()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def remote_executor(
    monkeypatch: pytest.MonkeyPatch, work_dir: Path
) -> AsyncGenerator[tuple[DockerCommandLineCodeExecutor, TcpForwarder]]:
    """Yield an executor that is connected to the engine over TCP, and the connection."""
    if not docker_engine.shared_engine().host.startswith("unix://"):
        pytest.skip("the test engine has no Unix socket on this machine")
    image, tcp = docker_engine.shared_engine().test_image("python"), TcpForwarder()
    async with await asyncio.start_server(tcp.serve, "127.0.0.1", 0) as server:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with DockerCommandLineCodeExecutor(
            image, work_dir=work_dir, transfer="copy"
        ) as executor:
            yield executor, tcp
        tcp.cut()


async def test_blocks_run_on_a_remote_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "given").write_text("from here")
    async with remote_executor(monkeypatch, tmp_path) as (executor, _):
        result = await run(executor, "print(open('given').read()); open('made', 'w').write('x')")
        assert (result.exit_code, result.output) == (0, "from here\n")
        assert (tmp_path / "made").read_text() == "x"


async def test_a_file_that_is_written_here_during_a_block_is_copied_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with remote_executor(monkeypatch, tmp_path) as (executor, _):
        code = "print('running', flush=True); import time; time.sleep(1)"
        async for event in executor.execute_stream([CodeBlock(code, "python")]):
            if isinstance(event, Output):
                (tmp_path / "late").write_text("from here")
        result = await run(executor, "print(open('late').read())")
        assert (result.exit_code, result.output) == (0, "from here\n")


async def test_a_failed_start_keeps_the_files_in_a_temporary_work_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/missing")
    executor = DockerCommandLineCodeExecutor()
    file = executor.work_dir / "given"
    file.write_text("from here")
    with pytest.raises(ContainerEngineUnavailable):
        await executor.start()
    assert file.read_text() == "from here"
    await executor.stop()


async def sleeping(executor: DockerCommandLineCodeExecutor) -> asyncio.Task[CommandLineCodeResult]:
    """Start a block that sleeps, and return its task after its first output."""
    has_output = asyncio.Event()

    async def run_to_the_end() -> CommandLineCodeResult:
        events, code = list[Event](), "print('so far', flush=True); import time; time.sleep(50)"
        async for event in executor.execute_stream([CodeBlock(code, "python")]):
            events.append(event)
            if isinstance(event, Output):
                has_output.set()
        return fold(events)

    task = asyncio.create_task(run_to_the_end())
    await has_output.wait()
    return task


@pytest.mark.parametrize("connections_to_refuse", exhaustive([3, 0, 1]))
async def test_a_broken_connection_only_fails_the_block_and_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, connections_to_refuse: int
) -> None:
    async with remote_executor(monkeypatch, tmp_path) as (executor, tcp):
        running = await sleeping(executor)
        tcp.connections_to_refuse = connections_to_refuse
        tcp.cut()
        result = await running
        assert result.outcome == "killed"
        assert result.output.startswith("so far\n")
        assert "all processes in the container were killed" in result.output
        assert (await run(executor, "print('again')")).output == "again\n"


async def test_a_container_that_the_engine_removes_during_its_restart_is_created_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    restart, restarts = Container.restart, list[Container]()

    async def refused(container: Container) -> None:
        raise BackendError("no more processes")

    async def restarted_and_removed(container: Container) -> None:
        await restart(container)
        restarts.append(container)
        if len(restarts) == 1:
            await container.remove()

    monkeypatch.setattr(Container, Container.kill_processes.__name__, refused)
    monkeypatch.setattr(Container, "restart", restarted_and_removed)
    (tmp_path / "given").write_text("from here")
    async with remote_executor(monkeypatch, tmp_path) as (executor, tcp):
        await run(executor, "open('made', 'w').write('there')")
        running = await sleeping(executor)
        tcp.cut()
        result = await running
        assert (result.outcome, "was replaced by a new one" in result.output) == ("killed", True)
        files = await run(executor, "print(open('given').read(), open('made').read())")
        assert files.output == "from here there\n"


async def test_a_container_survives_an_engine_that_restarts_it_late(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kill_processes = Container.kill_processes

    async def late(container: Container) -> None:
        await asyncio.sleep(0.5)
        await kill_processes(container)

    monkeypatch.setattr(Container, Container.kill_processes.__name__, late)
    async with remote_executor(monkeypatch, tmp_path) as (executor, tcp):
        running = await sleeping(executor)
        tcp.cut()
        assert "all processes in the container were killed" in (await running).output
        assert (await run(executor, "print('again')")).output == "again\n"
