"""What goes wrong with containers and their engine: what the caller then sees, and what is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
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
    ImageUnavailable,
    PullProgress,
    fold,
)
from cellblock.containers.client import connected
from cellblock.limits import MIB
from cellblock.runtime.linux.rmtree import remove_tree
from tests.containers import docker_engine
from tests.containers.image_registry import registry
from tests.plain_user import command

OWNER = """
import asyncio, sys
from cellblock import CodeBlock, DockerCommandLineCodeExecutor
async def main():
    async with DockerCommandLineCodeExecutor(sys.argv[1], sys.argv[2], auto_remove=sys.argv[3] == "remove") as executor:
        said = await executor.execute_code_blocks([CodeBlock("print('lives')", "python")])
        print(said.output + str(executor.work_dir), flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def image(monkeypatch: pytest.MonkeyPatch) -> str:
    return docker_engine.prepare(monkeypatch, "python")


@pytest.fixture
def name() -> Iterator[str]:
    own = f"cellblock-test-{uuid.uuid4()}"
    yield own
    for left in (
        docker_engine.running().docker("ps", "--all", "--quiet", "--filter", f"name={own}").split()
    ):
        docker_engine.running().docker("rm", "--force", left)


async def run(
    executor: DockerCommandLineCodeExecutor, code: str, language: str = "python"
) -> CodeResult:
    return await executor.execute_code_blocks([CodeBlock(code, language)])


def until(condition: Any, what: str, seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def there(name: str) -> str:
    """Give the state of the container of that name; "" when there is none."""
    return docker_engine.running().docker(
        "ps", "--all", "--filter", f"name={name}", "--format", "{{.State}}"
    )


# the container in the middle of a block


def test_stopping_ends_what_runs_and_says_so(image: str) -> None:
    async def main() -> None:
        executor = DockerCommandLineCodeExecutor(image)
        await executor.start()
        running = asyncio.create_task(run(executor, "import time; time.sleep(30)"))
        await asyncio.sleep(0.3)
        await executor.stop()
        with pytest.raises(BackendLost, match="stopped"):
            await running

    asyncio.run(main())


def test_a_container_that_somebody_removed_is_told_and_restart_makes_another(image: str) -> None:
    async def main() -> None:
        async with DockerCommandLineCodeExecutor(image) as executor:
            running = asyncio.create_task(run(executor, "import time; time.sleep(30)"))
            await asyncio.sleep(0.5)
            assert executor.container is not None
            await asyncio.to_thread(
                docker_engine.running().docker, "rm", "--force", executor.container
            )
            with pytest.raises(BackendLost, match=r"restart\(\)"):
                await running
            with pytest.raises(BackendLost):
                await run(executor, "print(1)")
            await executor.restart()
            assert (await run(executor, "print('again')")).output == "again\n"

    asyncio.run(main())


def test_an_engine_that_dies_in_the_middle_is_told(
    image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with docker_engine.own() as own:
        own.take_image(docker_engine.running(), image)
        monkeypatch.setenv("DOCKER_HOST", own.host)

        async def main() -> None:
            async with DockerCommandLineCodeExecutor(image, runtime="other") as executor:
                assert executor.container is not None
                assert (
                    own.docker("inspect", "--format", "{{.HostConfig.Runtime}}", executor.container)
                    == "other"
                )
                running = asyncio.create_task(
                    run(executor, "print('x', flush=True); import time; time.sleep(60)")
                )
                await asyncio.sleep(0.5)
                own.kill()
                with pytest.raises(BackendLost, match="engine does not answer"):
                    await running
            with pytest.raises(ContainerEngineUnavailable, match="DOCKER_HOST"):
                await executor.start()

        asyncio.run(main())


def test_a_full_disk_is_named_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    image = docker_engine.running().image("shell")
    with docker_engine.own(room=200 * MIB) as own:
        own.take_image(docker_engine.running(), image)
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


# what is not there


def test_a_missing_engine_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    with pytest.raises(ContainerEngineUnavailable, match=r"/nonexistent/docker.sock.*DOCKER_HOST"):
        asyncio.run(DockerCommandLineCodeExecutor().start())


def test_a_socket_that_this_user_may_not_use_is_a_clear_error() -> None:
    code = (
        "import asyncio, cellblock; asyncio.run(cellblock.DockerCommandLineCodeExecutor().start())"
    )
    made = command("-c", code)
    host = docker_engine.running().host
    if made is None or not host.startswith("unix://"):
        pytest.skip("no Python that a user without rights could start, or no socket")
    argv, environment = made
    done = subprocess.run(
        argv,
        env={**environment, "DOCKER_HOST": host},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert "may not use the container engine's socket" in done.stderr, done.stderr


def test_a_missing_image_is_a_clear_error() -> None:
    with pytest.raises(ImageUnavailable, match="cellblock-no-such-image:1"):
        asyncio.run(DockerCommandLineCodeExecutor("127.0.0.1:9/cellblock-no-such-image:1").start())


def test_an_image_that_is_not_there_is_fetched_and_told_of() -> None:
    told: list[PullProgress] = []

    async def main(reference: str) -> list[Event]:
        executor = DockerCommandLineCodeExecutor(reference, on_pull=told.append)
        try:
            return [
                event async for event in executor.execute_stream([CodeBlock("echo fetched", "sh")])
            ]
        finally:
            await executor.stop()

    with registry(docker_engine.running().image("shell")) as reference:
        events = asyncio.run(main(reference))
        assert fold(events).output == "fetched\n"
        assert events[: len(told)] == told, "the progress is not what comes first"
        last = told[-1]
        assert (last.image, last.layers_done, last.layers) == (reference, 1, 1)
        assert 0 < last.bytes_done == last.bytes_known
        assert "1 of 1 layers" in str(last)


def test_a_name_that_is_taken_is_a_clear_error(image: str, name: str) -> None:
    docker_engine.running().docker("create", "--name", name, image, "sh")
    with pytest.raises(BackendError, match=f"{name}.*container_name"):
        asyncio.run(DockerCommandLineCodeExecutor(image, name).start())
    assert there(name) == "created", "somebody else's container was touched"


def test_an_engine_is_not_asked_about_itself_for_each_container_but_anew_when_it_may_be_another() -> (
    None
):
    async def facts() -> tuple[object, object]:
        async with connected() as client:
            return client.info, client.version

    async def main() -> None:
        before, again = await facts(), await facts()
        assert all(one is other for one, other in zip(before, again, strict=True))
        path = Path(docker_engine.running().host.removeprefix("unix://"))
        path.chmod(
            path.stat().st_mode & 0o7777
        )  # which moves its time of change, as a new engine's socket has another
        assert (await facts())[0] is not before[0]

    if not docker_engine.running().host.startswith("unix://"):
        pytest.skip("the engine is not reached by a socket")
    asyncio.run(main())


# whose container it is


@pytest.mark.parametrize("mode", ["remove", "keep"])
def test_a_container_whose_owner_was_killed_goes_unless_it_was_to_be_kept(
    image: str, name: str, mode: str
) -> None:
    argv = [sys.executable, "-c", OWNER, image, name, mode]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"lives\n"
        work_dir = Path(owner.stdout.readline().decode().strip())
        assert (there(name), work_dir.is_dir()) == ("running", True)
        owner.send_signal(signal.SIGKILL)
    if mode == "remove":
        until(lambda: there(name) == "", "the container outlives its owner")
        until(lambda: not work_dir.exists(), "the temporary work folder outlives its owner")
    else:
        asyncio.run(_start_another(image))
        assert (there(name), work_dir.is_dir()) == ("running", True)
        remove_tree(str(work_dir))


async def _start_another(image: str) -> None:
    async with DockerCommandLineCodeExecutor(image):
        pass


def test_the_next_start_removes_what_a_dead_owner_left_and_nothing_else(
    image: str, name: str
) -> None:
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        capture_output=True,
        text=True,
        check=True,
    )
    from cellblock.containers import orphans
    from cellblock.runtime.linux import process_tree

    machine = orphans._machine()
    labels = {
        "dead": f'{{"machine": "{machine}", "pid": {dead.stdout.strip()}, "since": "1"}}',
        "living": f'{{"machine": "{machine}", "pid": {os.getpid()}, "since": "{process_tree.began(os.getpid())}"}}',
        "elsewhere": '{"machine": "another", "pid": 1, "since": "1"}',
        "strange": "what is this",
    }
    for kind, label in labels.items():
        options = [
            "--detach",
            "--interactive",
            "--network",
            "none",
            "--name",
            f"{name}-{kind}",
            "--label",
            f"{orphans.OWNER}={label}",
        ]
        docker_engine.running().docker("run", *options, image, "sh", "-c", "read _")
    asyncio.run(_start_another(image))
    assert {kind: there(f"{name}-{kind}") for kind in labels} == {
        "dead": "",
        "living": "running",
        "elsewhere": "running",
        "strange": "running",
    }


def test_a_container_that_is_kept_is_found_again_by_its_name(
    image: str, name: str, tmp_path: Path
) -> None:
    async def main() -> None:
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
        assert await asyncio.to_thread(there, name) == "running"
        with pytest.raises(BackendError, match=f"{name}.*work_dir={tmp_path}"):
            await DockerCommandLineCodeExecutor(image, name, auto_remove=False).start()
        second = DockerCommandLineCodeExecutor(
            image, name, auto_remove=False, read_only=False, work_dir=tmp_path
        )
        await second.start()
        assert (await run(second, "print(open('/var/mark').read())")).output == "here\n"
        await second.stop()
        assert await asyncio.to_thread(there, name) == "exited"
        await second.start()
        assert (await run(second, "print(open('/var/mark').read())")).output == "here\n"
        await second.stop()

    asyncio.run(main())


def test_stopping_is_quick_and_leaves_nothing(image: str, name: str) -> None:
    async def main() -> float:
        executor = DockerCommandLineCodeExecutor(image, name)
        await executor.start()
        begun = time.monotonic()
        await executor.stop()
        return time.monotonic() - begun

    assert asyncio.run(main()) < 1.5
    assert there(name) == ""


def test_the_temporary_work_folder_of_a_kept_container_stays_with_it(image: str, name: str) -> None:
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
