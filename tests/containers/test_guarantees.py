"""What executors of containers say they guarantee."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cellblock import (
    DockerCommandLineCodeExecutor,
    DockerJupyterCodeExecutor,
    DockerJupyterServer,
    DockerSessionCodeExecutor,
    Limits,
    sync,
)
from cellblock.sandbox.guarantees import Guarantee
from tests.containers import docker_engine
from tests.sandbox.test_guarantees import PROPERTIES, levels

ENGINES_OWN: dict[str, Any] = {"HostConfig": {"SecurityOpt": []}}


def mechanism(guarantees: tuple[Guarantee, ...], name: str) -> str:
    return next(item.mechanism for item in guarantees if item.property == name)


def test_all_executors_of_containers_say_that_calls_are_filtered() -> None:
    kernel = DockerJupyterCodeExecutor(DockerJupyterServer())
    for executor in (DockerCommandLineCodeExecutor(), DockerSessionCodeExecutor(), kernel):
        found = executor.guarantees()
        assert [item.property for item in found] == PROPERTIES
        assert levels(found)["kernel surface"] == "enforced"
        assert "seccomp filter" in mechanism(found, "kernel surface")
    assert sync.DockerCommandLineCodeExecutor().guarantees() == (
        DockerCommandLineCodeExecutor().guarantees()
    )


def test_options_that_give_more_are_named() -> None:
    executor = DockerCommandLineCodeExecutor(
        create_kwargs=ENGINES_OWN,
        network="bridge",
        environment={"TOKEN": "s"},
        extra_volumes={"/data": {"bind": "/d"}},
        limits=Limits(memory_bytes=None),
    )
    found = executor.guarantees()
    for name, text in {
        "kernel surface": "SecurityOpt",
        "network": "bridge",
        "secrets": "TOKEN",
    }.items():
        assert levels(found)[name] == "given by policy"
        assert text in mechanism(found, name)
    assert "/data" in mechanism(found, "files")
    assert levels(found)["memory"] == "off"


def test_gvisor_is_not_said_to_take_the_engines_filter() -> None:
    found = DockerCommandLineCodeExecutor(runtime="runsc").guarantees()
    assert levels(found)["kernel surface"] == "partly"
    assert "the runtime filters blocks" in mechanism(found, "kernel surface")
    kernel = DockerJupyterServer(runtime="runsc").guarantees()
    assert "the runtime filters blocks" not in mechanism(kernel, "kernel surface")


@pytest.mark.engine
def test_a_started_executor_knows_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(image: str) -> None:
        async with DockerCommandLineCodeExecutor(image) as executor:
            assert levels(executor.guarantees())["memory"] == "enforced"

    asyncio.run(main(docker_engine.use_shared_engine(monkeypatch, "python")))
