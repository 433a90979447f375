"""A share of the processors holds for a block and all its processes; where nothing can hold it, that is said."""

from __future__ import annotations

import asyncio
import subprocess
from typing import Any

import pytest

from cellblock import (
    CodeBlock,
    CodeExecutor,
    DockerCommandLineCodeExecutor,
    Limits,
    LocalCommandLineCodeExecutor,
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
)
from cellblock.containers.spec import ContainerSettings
from cellblock.policy import Policy
from cellblock.sandbox import cgroups
from cellblock.sandbox.guarantees import sandbox_guarantees
from cellblock.sandbox.probe import probe
from tests import plain_user
from tests.containers import docker_engine

SHARE = 0.1  # so little that two busy processes have more even on a machine that is busy itself
# Two processes that are busy for as long as it takes on the clock; how long they had a processor for each second of it.
BUSY = """
import os, time
begun = time.monotonic()
child = os.fork()
while time.monotonic() < begun + 0.8:
    pass
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
used, wall = os.times(), time.monotonic() - begun
print((used.user + used.system + used.children_user + used.children_system) / wall)
"""
needs_groups = pytest.mark.skipif(
    not cgroups.find().processors, reason="no control group with processors can be made here"
)


def share_of(make: Any, processors: float | None, **options: Any) -> float:
    """Give how many processors two busy processes of a block keep busy."""

    async def main() -> float:
        executor: CodeExecutor = make(limits=Limits(processors=processors), **options)
        async with executor:
            result = await executor.execute_code_blocks([CodeBlock(BUSY, "python")])
            assert result.exit_code == 0, result.output
            return float(result.output)

    return asyncio.run(main())


@needs_groups
@pytest.mark.parametrize(
    "make",
    [SandboxCommandLineCodeExecutor, SandboxSessionCodeExecutor, LocalCommandLineCodeExecutor],
)
@pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor")
def test_a_block_has_its_share_of_the_processors_and_no_more(make: Any) -> None:
    assert share_of(make, SHARE) < 2 * SHARE < share_of(make, None)


def test_a_docker_container_has_its_share_of_the_processors_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = docker_engine.prepare(monkeypatch, "python")
    make = DockerCommandLineCodeExecutor
    assert share_of(make, SHARE, image=image) < 2 * SHARE < share_of(make, None, image=image)


def test_more_processors_than_there_are_is_no_error() -> None:
    config = ContainerSettings(image="x", user="0:0", limits=Limits(processors=4096)).config()[
        "HostConfig"
    ]
    assert (config["CpuPeriod"], config["CpuQuota"]) == (100_000, 409_600_000)


START = """
import asyncio
from cellblock import Limits, SandboxCommandLineCodeExecutor
from cellblock.sandbox import cgroups
print(cgroups.find().processors)
asyncio.run(SandboxCommandLineCodeExecutor(limits=Limits(processors=1)).start())
"""


def test_a_share_that_nothing_can_hold_stops_the_start() -> None:
    made = plain_user.command("-c", START)
    if made is None:
        pytest.skip("no Python that a user without rights could start")
    argv, environment = made
    done = subprocess.run(
        argv, env=environment, cwd="/", capture_output=True, text=True, check=False
    )
    if done.stdout.strip():
        pytest.skip("a user without rights may make control groups here")
    assert "BackendError: Limits.processors cannot be held here" in done.stderr
    assert "Delegate=yes" in done.stderr


def test_guarantees_tell_of_it() -> None:
    found = probe()
    given = {
        item.property: item
        for item in sandbox_guarantees(found, Limits(processors=1, cpu_seconds=1), Policy())
    }
    if found.groups.processors:
        assert "processors by control group" in given["cpu"].mechanism
    else:
        assert (given["cpu"].level, bool(given["cpu"].advice)) == ("not possible here", True)
