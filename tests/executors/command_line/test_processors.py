"""`Limits.processors` limits the CPU share of a block and its processes, or prevents the start."""

from __future__ import annotations

import asyncio
import subprocess
from dataclasses import replace
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
from cellblock.containers.spec import ContainerSpec
from cellblock.policy import Policy
from cellblock.sandbox import cgroups
from cellblock.sandbox.guarantees import sandbox_guarantees
from cellblock.sandbox.probe import probe
from tests import plain_user
from tests.containers import docker_engine

pytestmark = pytest.mark.depends_on_user

SHARE = 0.03  # so small that two processes get more without a limit, even on a busy machine
# Two processes keep busy for a fixed wall time, and print the CPU time per second of it.
BUSY = """
import os, resource, time

def used():
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)

begun, before = time.monotonic(), used()
child = os.fork()
while time.monotonic() < begun + 0.8:
    pass
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
print((used() - before) / (time.monotonic() - begun))
"""
needs_groups = pytest.mark.skipif(
    not cgroups.find_cgroups().processors, reason="CPU control groups cannot be created here"
)


def cpu_share(make: Any, processors: float | None, **options: Any) -> float:
    """Return how many CPUs two busy processes of a block use."""

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
def test_a_block_gets_its_share_of_the_cpus_and_no_more(make: Any) -> None:
    assert cpu_share(make, SHARE) < 2 * SHARE < cpu_share(make, None)


@pytest.mark.engine
def test_a_container_in_docker_gets_its_share_of_the_cpus_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = docker_engine.use_shared_engine(monkeypatch, "python")
    make = DockerCommandLineCodeExecutor
    assert cpu_share(make, SHARE, image=image) < 2 * SHARE < cpu_share(make, None, image=image)


def test_more_cpus_than_the_machine_has_is_no_error() -> None:
    config = ContainerSpec(
        image="x", user="0:0", limits=replace(Limits.unlimited(), processors=4096)
    ).create_body("")["HostConfig"]
    assert (config["CpuPeriod"], config["CpuQuota"]) == (100_000, 409_600_000)


START = """
import asyncio
from cellblock import Limits, SandboxCommandLineCodeExecutor
from cellblock.sandbox import cgroups
print(cgroups.find_cgroups().processors)
asyncio.run(SandboxCommandLineCodeExecutor(limits=Limits(processors=1)).start())
"""


def test_a_cpu_share_that_cannot_be_enforced_prevents_the_start() -> None:
    made = plain_user.unprivileged_command("-c", START)
    if made is None:
        pytest.skip("there is no Python that an unprivileged user can start")
    argv, environment = made
    done = subprocess.run(
        argv, env=environment, cwd="/", capture_output=True, text=True, check=False
    )
    if done.stdout.strip():
        pytest.skip("an unprivileged user can create control groups here")
    assert "BackendError: Limits.processors cannot be enforced here" in done.stderr
    assert "Delegate=yes" in done.stderr


def test_guarantees_include_the_cpu_share() -> None:
    found = probe()
    given = {
        item.property: item
        for item in sandbox_guarantees(
            found, replace(Limits.unlimited(), processors=1, cpu_seconds=1), Policy()
        )
    }
    if found.cgroups.processors:
        assert "processors by control group" in given["cpu"].mechanism
    else:
        assert (given["cpu"].level, bool(given["cpu"].advice)) == ("not possible here", True)
