"""A container whose server is lost: what runs in it is ended, another server started, and the block told so."""

from __future__ import annotations

import asyncio

import pytest

from cellblock import BackendError, DockerCommandLineCodeExecutor
from cellblock.backends import base
from cellblock.backends.base import Connection
from cellblock.backends.container import ContainerPlace
from cellblock.containers.container import Container
from tests.containers import docker_engine
from tests.executors.command_line.test_docker_endings import run


@pytest.fixture(autouse=True)
def image(monkeypatch: pytest.MonkeyPatch) -> str:
    return docker_engine.prepare(monkeypatch, "python")


def test_a_block_that_ends_the_server_is_told_and_the_container_goes_on(image: str) -> None:
    async def main() -> None:
        async with DockerCommandLineCodeExecutor(image) as executor:
            await run(executor, "open('kept', 'w').write('x'); open('/tmp/kept', 'w').write('y')")
            result = await run(
                executor,
                "print('before', flush=True); import os, time; time.sleep(0.1); os.kill(-1, 9)",
            )
            assert (result.exit_code, result.outcome) == (137, "killed"), result
            assert result.output.startswith("before\n")
            assert "all that ran in the container was ended" in result.output
            after = await run(executor, "print(open('kept').read(), open('/tmp/kept').read())")
            assert after.output == "x y\n"

    asyncio.run(main())


def test_what_was_ended_with_the_server_leaves_no_zombies(image: str) -> None:
    states = "import glob; print({open(f).read().rpartition(')')[2].split()[0] for f in glob.glob('/proc/[0-9]*/stat')})"

    async def main() -> None:
        async with DockerCommandLineCodeExecutor(image) as executor:
            await run(executor, "import os; os.kill(-1, 9)")
            assert "Z" not in (await run(executor, states)).output

    asyncio.run(main())


def test_a_container_that_has_no_process_to_spare_is_restarted(
    image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(container: Container) -> None:
        raise BackendError("no more processes")

    async def main() -> None:
        async with DockerCommandLineCodeExecutor(image) as executor:
            monkeypatch.setattr(Container, "end_all", refused)
            assert (
                "did not answer any more: the container was "
                in (await run(executor, "import os; os.kill(-1, 9)")).output
            )
            assert (await run(executor, "print(1)")).output == "1\n"

    asyncio.run(main())


def test_an_emptied_container_in_which_nothing_starts_is_restarted(
    image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_place, failures = ContainerPlace.open, list[str]()

    async def fail_at_first(place: ContainerPlace) -> Connection:
        if not failures:
            failures.append("cannot exec in a stopped state")  # as a busy engine was seen to say
            raise BackendError(failures[0])
        return await open_place(place)

    async def main() -> None:
        async with DockerCommandLineCodeExecutor(image) as executor:
            monkeypatch.setattr(ContainerPlace, "open", fail_at_first)
            result = await run(executor, "import os; os.kill(-1, 9)")
            assert (
                "did not answer any more: the container was " in result.output
            )  # or gone: see `_REPLACED`
            assert (await run(executor, "print(1)")).output == "1\n"

    asyncio.run(main())
    assert failures


def test_a_server_that_does_not_answer_is_given_up(
    image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "_ASK", 0.2)
    monkeypatch.setattr(base, "_ANSWER", 1.0)

    async def main() -> None:
        async with DockerCommandLineCodeExecutor(image) as executor:
            code = "import os, signal\nfor pid in map(int, filter(str.isdigit, os.listdir('/proc'))):\n"
            code += (
                "    if pid not in (1, os.getpid()): os.kill(pid, signal.SIGSTOP)\nwhile True: pass"
            )
            result = await run(executor, code)
            assert (result.exit_code, result.outcome) == (137, "killed"), result
            assert (await run(executor, "print('again')")).output == "again\n"

    asyncio.run(main())
