"""An engine that is reached over TCP, as one on another machine is, and sees no folder of ours."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from cellblock import BackendError, CodeBlock, DockerCommandLineCodeExecutor
from cellblock.containers.container import Container
from cellblock.events import Event, Output
from cellblock.results import CommandLineCodeResult, fold
from tests.containers import docker_engine


class Line:
    """A way over TCP to the engine for all tests."""

    def __init__(self) -> None:
        self.refusals = 0  # of connections that are yet to come
        self._ends = set[asyncio.StreamWriter]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what comes and goes, until either side ends."""
        if self.refusals:
            self.refusals -= 1
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_unix_connection(
            docker_engine.running().host.removeprefix("unix://")
        )
        self._ends |= {writer, far_writer}
        passing = [
            asyncio.create_task(_pass(reader, far_writer)),
            asyncio.create_task(_pass(far_reader, writer)),
        ]
        await asyncio.wait(passing)

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
async def line(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Line]:
    """Have executors reach the engine over TCP."""
    if not docker_engine.running().host.startswith("unix://"):
        pytest.skip("the engine for all tests is not at a socket of this machine")
    made = Line()
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0) as server:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        yield made
        made.cut()


def block(code: str) -> list[CodeBlock]:
    return [CodeBlock(code, "python")]


def test_blocks_run_on_an_engine_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    image = docker_engine.running().image("python")

    async def main() -> None:
        (tmp_path / "given").write_text("from here")
        async with (
            line(monkeypatch),
            DockerCommandLineCodeExecutor(image, work_dir=tmp_path, transfer="copy") as executor,
        ):
            result = await executor.execute_code_blocks(
                block("print(open('given').read()); open('made', 'w').write('x')")
            )
            assert (result.exit_code, result.output) == (0, "from here\n")
            assert (tmp_path / "made").read_text() == "x"

    asyncio.run(main())


async def sleeping(executor: DockerCommandLineCodeExecutor) -> asyncio.Task[CommandLineCodeResult]:
    """Begin a block that sleeps; give its task when its first words have come."""
    heard = asyncio.Event()

    async def run() -> CommandLineCodeResult:
        events = list[Event]()
        async for event in executor.execute_stream(
            block("print('so far', flush=True); import time; time.sleep(50)")
        ):
            events.append(event)
            if isinstance(event, Output):
                heard.set()
        return fold(events)

    task = asyncio.create_task(run())
    await heard.wait()
    return task


@pytest.mark.parametrize("refusals", [0, 1, 3])
def test_a_line_that_breaks_costs_the_block_alone_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refusals: int
) -> None:
    image = docker_engine.running().image("python")

    async def main() -> None:
        async with (
            line(monkeypatch) as way,
            DockerCommandLineCodeExecutor(image, work_dir=tmp_path, transfer="copy") as executor,
        ):
            running = await sleeping(executor)
            way.refusals = refusals
            way.cut()
            result = await running
            assert result.outcome == "killed"
            assert result.output.startswith("so far\n")
            assert "all that ran in the container was ended" in result.output
            assert (await executor.execute_code_blocks(block("print('again')"))).output == "again\n"

    asyncio.run(main())


def test_a_container_that_the_engine_removes_while_it_restarts_it_is_made_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    image, restart, restarts = (
        docker_engine.running().image("python"),
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
        monkeypatch.setattr(Container, "end_all", refused)
        monkeypatch.setattr(Container, "restart", restarted_and_removed)
        (tmp_path / "given").write_text("from here")
        async with (
            line(monkeypatch) as way,
            DockerCommandLineCodeExecutor(image, work_dir=tmp_path, transfer="copy") as executor,
        ):
            await executor.execute_code_blocks(block("open('made', 'w').write('there')"))
            running = await sleeping(executor)
            way.cut()
            result = await running
            assert (result.outcome, "there is a new one" in result.output) == ("killed", True)
            look = await executor.execute_code_blocks(
                block("print(open('given').read(), open('made').read())")
            )
            assert look.output == "from here there\n"

    asyncio.run(main())


def test_a_container_is_still_there_when_an_engine_comes_late_to_begin_it_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    image, end_all = docker_engine.running().image("python"), Container.end_all

    async def late(container: Container) -> None:
        await asyncio.sleep(2)
        await end_all(container)

    async def main() -> None:
        monkeypatch.setattr(Container, "end_all", late)
        async with (
            line(monkeypatch) as way,
            DockerCommandLineCodeExecutor(image, work_dir=tmp_path, transfer="copy") as executor,
        ):
            running = await sleeping(executor)
            way.cut()
            assert "all that ran in the container was ended" in (await running).output
            assert (await executor.execute_code_blocks(block("print('again')"))).output == "again\n"

    asyncio.run(main())
