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

pytestmark = pytest.mark.engine


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
async def forwarder(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[TcpForwarder]:
    """Make executors connect to the engine over TCP."""
    if not docker_engine.shared_engine().host.startswith("unix://"):
        pytest.skip("the test engine has no Unix socket on this machine")
    tcp = TcpForwarder()
    async with await asyncio.start_server(tcp.serve, "127.0.0.1", 0) as server:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        yield tcp
        tcp.cut()


def block(code: str) -> list[CodeBlock]:
    return [CodeBlock(code, "python")]


def test_blocks_run_on_a_remote_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    image = docker_engine.shared_engine().test_image("python")

    async def main() -> None:
        (tmp_path / "given").write_text("from here")
        async with (
            forwarder(monkeypatch),
            DockerCommandLineCodeExecutor(image, work_dir=tmp_path, transfer="copy") as executor,
        ):
            result = await executor.execute_code_blocks(
                block("print(open('given').read()); open('made', 'w').write('x')")
            )
            assert (result.exit_code, result.output) == (0, "from here\n")
            assert (tmp_path / "made").read_text() == "x"

    asyncio.run(main())


def test_a_file_that_is_written_here_during_a_block_is_copied_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    image = docker_engine.shared_engine().test_image("python")

    async def main() -> None:
        async with (
            forwarder(monkeypatch),
            DockerCommandLineCodeExecutor(image, work_dir=tmp_path, transfer="copy") as executor,
        ):
            code = "print('running', flush=True); import time; time.sleep(1)"
            async for event in executor.execute_stream(block(code)):
                if isinstance(event, Output):
                    (tmp_path / "late").write_text("from here")
            result = await executor.execute_code_blocks(block("print(open('late').read())"))
            assert (result.exit_code, result.output) == (0, "from here\n")

    asyncio.run(main())


def test_a_failed_start_keeps_the_files_in_a_temporary_work_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def main() -> None:
        executor = DockerCommandLineCodeExecutor()
        file = executor.work_dir / "given"
        file.write_text("from here")
        with pytest.raises(ContainerEngineUnavailable):
            await executor.start()
        assert file.read_text() == "from here"
        await executor.stop()

    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/missing")
    asyncio.run(main())


async def sleeping(executor: DockerCommandLineCodeExecutor) -> asyncio.Task[CommandLineCodeResult]:
    """Start a block that sleeps, and return its task after its first output."""
    has_output = asyncio.Event()

    async def run() -> CommandLineCodeResult:
        events = list[Event]()
        async for event in executor.execute_stream(
            block("print('so far', flush=True); import time; time.sleep(50)")
        ):
            events.append(event)
            if isinstance(event, Output):
                has_output.set()
        return fold(events)

    task = asyncio.create_task(run())
    await has_output.wait()
    return task


@pytest.mark.parametrize("connections_to_refuse", [0, 1, 3])
def test_a_broken_connection_only_fails_the_block_and_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, connections_to_refuse: int
) -> None:
    image = docker_engine.shared_engine().test_image("python")

    async def main() -> None:
        async with (
            forwarder(monkeypatch) as tcp,
            DockerCommandLineCodeExecutor(image, work_dir=tmp_path, transfer="copy") as executor,
        ):
            running = await sleeping(executor)
            tcp.connections_to_refuse = connections_to_refuse
            tcp.cut()
            result = await running
            assert result.outcome == "killed"
            assert result.output.startswith("so far\n")
            assert "all processes in the container were killed" in result.output
            assert (await executor.execute_code_blocks(block("print('again')"))).output == "again\n"

    asyncio.run(main())


def test_a_container_that_the_engine_removes_during_its_restart_is_created_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    image, restart, restarts = (
        docker_engine.shared_engine().test_image("python"),
        Container.restart,
        list[Container](),
    )

    async def refused(container: Container) -> None:
        raise BackendError("no more processes")

    async def restarted_and_removed(container: Container) -> None:
        await restart(container)
        restarts.append(container)
        if len(restarts) == 1:
            await container.remove()

    async def main() -> None:
        monkeypatch.setattr(Container, Container.kill_processes.__name__, refused)
        monkeypatch.setattr(Container, "restart", restarted_and_removed)
        (tmp_path / "given").write_text("from here")
        async with (
            forwarder(monkeypatch) as tcp,
            DockerCommandLineCodeExecutor(image, work_dir=tmp_path, transfer="copy") as executor,
        ):
            await executor.execute_code_blocks(block("open('made', 'w').write('there')"))
            running = await sleeping(executor)
            tcp.cut()
            result = await running
            assert (result.outcome, "was replaced by a new one" in result.output) == (
                "killed",
                True,
            )
            files = await executor.execute_code_blocks(
                block("print(open('given').read(), open('made').read())")
            )
            assert files.output == "from here there\n"

    asyncio.run(main())


def test_a_container_survives_an_engine_that_restarts_it_late(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    image, kill_processes = (
        docker_engine.shared_engine().test_image("python"),
        Container.kill_processes,
    )

    async def late(container: Container) -> None:
        await asyncio.sleep(0.5)
        await kill_processes(container)

    async def main() -> None:
        monkeypatch.setattr(Container, Container.kill_processes.__name__, late)
        async with (
            forwarder(monkeypatch) as tcp,
            DockerCommandLineCodeExecutor(image, work_dir=tmp_path, transfer="copy") as executor,
        ):
            running = await sleeping(executor)
            tcp.cut()
            assert "all processes in the container were killed" in (await running).output
            assert (await executor.execute_code_blocks(block("print('again')"))).output == "again\n"

    asyncio.run(main())
