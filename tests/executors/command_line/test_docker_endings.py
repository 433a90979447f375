"""Failures of containers and their engine: what the caller sees, and what is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cellblock import (
    BackendError,
    BackendLost,
    CodeBlock,
    CodeResult,
    ContainerEngineUnavailable,
    DockerCommandLineCodeExecutor,
    Event,
    ExecutorStopped,
    ImageUnavailable,
    PullProgress,
    fold,
)
from cellblock.aio.background_loop import background_loop
from cellblock.containers.client import open_client
from cellblock.limits import MIB
from cellblock.runtime.linux.safe_folder import remove_tree
from cellblock.testing.liveness import wait_until
from tests.cancelling_awaits import CancellingAwaits
from tests.containers import docker_engine
from tests.containers.image_registry import serve_image
from tests.executors.blocks import run
from tests.executors.programs import run_as_plain_user, run_python, start_python
from tests.suite.tiers import exhaustive

pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.usefixtures("image")]

OWNER = """
import asyncio, sys
from cellblock import CodeBlock, DockerCommandLineCodeExecutor
async def main():
    async with DockerCommandLineCodeExecutor(
        sys.argv[1], sys.argv[2], auto_remove=sys.argv[3] == "remove"
    ) as executor:
        said = await executor.execute_code_blocks([CodeBlock("print('lives')", "python")])
        print(said.output + str(executor.work_dir), flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.fixture
def name() -> Iterator[str]:
    own = f"cellblock-test-{uuid.uuid4()}"
    yield own
    for left in (
        docker_engine.shared_engine()
        .docker("ps", "--all", "--quiet", "--filter", f"name={own}")
        .split()
    ):
        docker_engine.shared_engine().docker("rm", "--force", left)


async def start_waiting(executor: DockerCommandLineCodeExecutor) -> asyncio.Task[CodeResult]:
    """Start a block that only waits, and return its task once the block runs."""
    code = "open('begun', 'w').close(); import time; time.sleep(60)"
    running = asyncio.create_task(run(executor, code))
    await wait_until((executor.work_dir / "begun").exists, "the block runs")
    return running


def until(condition: Any, what: str, seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def container_state(name: str) -> str:
    """Return the state of the container `name`, or "" if it does not exist."""
    return docker_engine.shared_engine().docker(
        "ps", "--all", "--filter", f"name={name}", "--format", "{{.State}}"
    )


# failures during a block


async def test_stop_kills_the_running_block_and_raises(image: str) -> None:
    executor = DockerCommandLineCodeExecutor(image)
    await executor.start()
    running = await start_waiting(executor)
    await executor.stop()
    with pytest.raises(ExecutorStopped, match="stopped"):
        await running


async def remove_during_a_block(executor: DockerCommandLineCodeExecutor) -> CodeResult:
    running = await start_waiting(executor)
    assert executor.container is not None
    await asyncio.to_thread(
        docker_engine.shared_engine().docker, "rm", "--force", executor.container
    )
    return await running


async def test_a_removed_container_is_replaced_and_the_result_says_so(image: str) -> None:
    async with DockerCommandLineCodeExecutor(image) as executor:
        result = await remove_during_a_block(executor)
        assert (result.exit_code, result.outcome) == (137, "killed")
        assert "was replaced by a new one" in result.output
        assert (await run(executor, "print('again')")).output == "again\n"


async def test_a_removed_container_that_was_to_stay_is_reported_and_restart_creates_another(
    image: str,
) -> None:
    executor = DockerCommandLineCodeExecutor(image, auto_remove=False)
    await executor.start()
    try:
        with pytest.raises(BackendLost, match=r"restart\(\)"):
            await remove_during_a_block(executor)
        with pytest.raises(BackendLost):
            await run(executor, "print(1)")
        await executor.restart()
        assert (await run(executor, "print('again')")).output == "again\n"
        assert executor.container is not None
        name = executor.container
    finally:
        await executor.stop()
    docker_engine.shared_engine().docker("rm", "--force", "--volumes", name)


def test_an_engine_that_dies_during_a_block_is_reported(
    image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with docker_engine.private_engine() as own:
        own.copy_image_from(docker_engine.shared_engine(), image)
        monkeypatch.setenv("DOCKER_HOST", own.host)

        async def main() -> None:
            async with DockerCommandLineCodeExecutor(image, runtime="other") as executor:
                assert executor.container is not None
                assert (
                    own.docker("inspect", "--format", "{{.HostConfig.Runtime}}", executor.container)
                    == "other"
                )
                running = await start_waiting(executor)
                own.kill()
                with pytest.raises(BackendLost, match="engine no longer answers"):
                    await running
            with pytest.raises(ContainerEngineUnavailable, match="DOCKER_HOST"):
                await executor.start()

        asyncio.run(main())


def test_a_full_disk_is_reported_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    image = docker_engine.shared_engine().test_image("shell")
    with docker_engine.private_engine(size=200 * MIB) as own:
        own.copy_image_from(docker_engine.shared_engine(), image)
        monkeypatch.setenv("DOCKER_HOST", own.host)
        ballast = own.folder / "data" / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb") as file:
            while file.write(bytes(MIB)):
                file.flush()
        with pytest.raises(BackendError, match=r"no space left on device.*docker system prune"):
            asyncio.run(DockerCommandLineCodeExecutor(image).start())
        ballast.unlink()

        async def main() -> None:
            async with DockerCommandLineCodeExecutor(image) as executor:
                assert (await run(executor, "echo room", "sh")).output == "room\n"

        asyncio.run(main())


# missing resources


def test_a_missing_engine_raises_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    with pytest.raises(ContainerEngineUnavailable, match=r"/nonexistent/docker.sock.*DOCKER_HOST"):
        asyncio.run(DockerCommandLineCodeExecutor().start())


def test_a_socket_without_permission_raises_a_clear_error() -> None:
    code = (
        "import asyncio, cellblock; asyncio.run(cellblock.DockerCommandLineCodeExecutor().start())"
    )
    host = docker_engine.shared_engine().host
    if not host.startswith("unix://"):
        pytest.skip("the engine has no socket")
    done = run_as_plain_user("-c", code, DOCKER_HOST=host)
    assert "no permission to use the container engine's socket" in done.stderr, done.stderr


def test_a_missing_image_raises_a_clear_error() -> None:
    with pytest.raises(ImageUnavailable, match="cellblock-no-such-image:1"):
        asyncio.run(DockerCommandLineCodeExecutor("127.0.0.1:9/cellblock-no-such-image:1").start())


def test_a_missing_image_is_pulled_with_progress_events() -> None:
    told: list[PullProgress] = []

    async def main(reference: str) -> list[Event]:
        executor = DockerCommandLineCodeExecutor(reference, on_pull=told.append)
        try:
            return [
                event async for event in executor.execute_stream([CodeBlock("echo fetched", "sh")])
            ]
        finally:
            await executor.stop()

    with serve_image(docker_engine.shared_engine().test_image("shell")) as reference:
        events = asyncio.run(main(reference))
        assert fold(events).output == "fetched\n"
        assert events[: len(told)] == told, "the progress events do not come first"
        last = told[-1]
        assert (last.image, last.layers_done, last.layers_total) == (reference, 1, 1)
        assert 0 < last.bytes_done == last.bytes_total
        assert "1 of 1 layers" in str(last)


def test_a_container_name_in_use_raises_a_clear_error(image: str, name: str) -> None:
    docker_engine.shared_engine().docker("create", "--name", name, image, "sh")
    with pytest.raises(BackendError, match=f"{name}.*container_name"):
        asyncio.run(DockerCommandLineCodeExecutor(image, name).start())
    assert container_state(name) == "created", (
        "a container that belongs to another user was changed"
    )


def test_engine_facts_are_cached_until_its_socket_changes() -> None:
    async def facts() -> tuple[object, object]:
        async with open_client() as client:
            return client.info, client.version

    async def main() -> None:
        before, again = await facts(), await facts()
        assert all(one is other for one, other in zip(before, again, strict=True))
        path = Path(docker_engine.shared_engine().host.removeprefix("unix://"))
        # Changes the change time. The socket of a new engine has another change time, too.
        path.chmod(path.stat().st_mode & 0o7777)
        assert (await facts())[0] is not before[0]

    if not docker_engine.shared_engine().host.startswith("unix://"):
        pytest.skip("the engine is not reached by a socket")
    with docker_engine.shared_engine().locked("socket"):
        asyncio.run(main())


# ownership of containers


@pytest.mark.parametrize("mode", exhaustive(["remove", "keep"]))
def test_the_container_of_a_killed_process_is_removed_unless_it_is_kept(
    image: str, name: str, mode: str
) -> None:
    with start_python("-c", OWNER, image, name, mode) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "lives\n"
        work_dir = Path(owner.stdout.readline().strip())
        assert (container_state(name), work_dir.is_dir()) == ("running", True)
        owner.send_signal(signal.SIGKILL)
    if mode == "remove":
        until(lambda: container_state(name) == "", "the container outlives its owner")
        until(lambda: not work_dir.exists(), "the temporary work folder outlives its owner")
    else:
        asyncio.run(_start_another(image))
        assert (container_state(name), work_dir.is_dir()) == ("running", True)
        remove_tree(str(work_dir))


async def _start_another(image: str) -> None:
    async with DockerCommandLineCodeExecutor(image):
        pass


def test_the_next_start_removes_only_the_containers_of_dead_processes(
    image: str, name: str
) -> None:
    dead = run_python("-c", "import os; print(os.getpid())")
    from cellblock.containers import orphans
    from cellblock.runtime.linux import process_tree

    machine = orphans._machine_id()
    labels = {
        "dead": f'{{"machine": "{machine}", "pid": {dead.stdout.strip()}, "since": "1"}}',
        "living": (
            f'{{"machine": "{machine}", "pid": {os.getpid()}, '
            f'"since": "{process_tree.start_time(os.getpid())}"}}'
        ),
        "elsewhere": '{"machine": "another", "pid": 1, "since": "1"}',
        "strange": "what is this",
    }
    for kind, label in labels.items():
        options = ["--name", f"{name}-{kind}", "--label", f"{orphans.OWNER_LABEL}={label}"]
        # Not started: other processes may remove the dead one's meanwhile.
        docker_engine.shared_engine().docker("create", *options, image, "sh")
    asyncio.run(_start_another(image))
    assert {kind: container_state(f"{name}-{kind}") for kind in labels} == {
        "dead": "",
        "living": "created",
        "elsewhere": "created",
        "strange": "created",
    }


async def test_a_kept_container_is_found_again_by_its_name(
    image: str, name: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {
        "auto_remove": False,
        "stop_container": False,
        "read_only": False,
        "work_dir": tmp_path,
    }
    first = DockerCommandLineCodeExecutor(image, name, **options)
    await first.start()
    await run(first, "open('/var/mark', 'w').write('here')")
    with pytest.raises(BackendError, match=f"{name}.*Another executor"):
        await DockerCommandLineCodeExecutor(image, name, **options).start()
    await first.stop()
    assert await asyncio.to_thread(container_state, name) == "running"
    with pytest.raises(BackendError, match=f"{name}.*work_dir={tmp_path}"):
        await DockerCommandLineCodeExecutor(image, name, auto_remove=False).start()
    second = DockerCommandLineCodeExecutor(
        image, name, auto_remove=False, read_only=False, work_dir=tmp_path
    )
    await second.start()
    assert (await run(second, "print(open('/var/mark').read())")).output == "here\n"
    await second.stop()
    assert await asyncio.to_thread(container_state, name) == "exited"
    await second.start()
    assert (await run(second, "print(open('/var/mark').read())")).output == "here\n"
    await second.stop()


@pytest.mark.parametrize("late", exhaustive([True, False]))
async def test_a_cancelled_start_leaves_no_container(image: str, name: str, late: bool) -> None:
    for number in itertools.count(1):
        executor = DockerCommandLineCodeExecutor(image, name)
        awaits = CancellingAwaits(executor.start(), number, late=late)
        with contextlib.suppress(asyncio.CancelledError):
            await background_loop().call(awaits.run())
        await executor.stop()
        assert container_state(name) == "", f"await {number}"
        if awaits.count < number:
            return


def test_the_temporary_work_folder_of_a_kept_container_is_kept(image: str, name: str) -> None:
    async def main() -> Path:
        executor = DockerCommandLineCodeExecutor(image, name, auto_remove=False)
        await executor.start()
        await run(executor, "open('made', 'w').write('x')")
        await executor.stop()
        await executor.start()
        assert (await run(executor, "print(open('made').read())")).output == "x\n"
        await executor.stop()
        return executor.work_dir

    folder = asyncio.run(main())
    assert (folder / "made").read_text() == "x"
    remove_tree(str(folder))
