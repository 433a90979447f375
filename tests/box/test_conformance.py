"""Every home of a box meets the contract. An ordinary user runs this file too, in `.ci/run`."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock.sandbox.probe import unavailable_reason
from cellblock.testing.conformance import BOX_CHECKS, CheckSkipped
from tests.box.shared_box import SharedBoxTarget
from tests.executors.session import session_image
from tests.plain_user import unprivileged_command

NEEDS_USERS = "a_command_runs_as_the_user_that_is_named"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SharedBoxTarget]:
    if reason := unavailable_reason():
        pytest.skip(f"the sandbox is not available: {reason}")
    target = SharedBoxTarget("cellblock:Sandbox")
    yield target
    asyncio.run(target.close())


@pytest.fixture(scope="module")
def sandbox_with_users(sandbox: SharedBoxTarget) -> Iterator[SharedBoxTarget]:
    target = SharedBoxTarget("cellblock:Sandbox", {"users": True})
    yield target
    asyncio.run(target.close())


@pytest.fixture(scope="module")
def debian(sandbox: SharedBoxTarget) -> Iterator[SharedBoxTarget]:
    root = Path.home() / ".cache" / "cellblock-ci" / "debian-bookworm"
    if not (root / ".complete").exists():
        pytest.skip("no root by debootstrap: .ci/bare-debian makes it")
    target = SharedBoxTarget("cellblock:Sandbox", {"root": str(root), "users": True})
    yield target
    asyncio.run(target.close())


@pytest.fixture(scope="module")
def docker() -> Iterator[SharedBoxTarget]:
    with pytest.MonkeyPatch.context() as patch:
        image = session_image.use_session_image(patch)
        target = SharedBoxTarget("cellblock:DockerSandbox", {"image": image})
        yield target
        asyncio.run(target.close())


def check(target: SharedBoxTarget, name: str) -> None:
    try:
        asyncio.run(BOX_CHECKS[name](target))
    except CheckSkipped as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("name", [name for name in BOX_CHECKS if "user" in name])
def test_a_box_with_several_users_meets_the_contract(
    sandbox_with_users: SharedBoxTarget, name: str
) -> None:
    check(sandbox_with_users, name)


@pytest.mark.parametrize("name", [name for name in BOX_CHECKS if name != NEEDS_USERS])
def test_a_box_in_the_sandbox_meets_the_contract(sandbox: SharedBoxTarget, name: str) -> None:
    check(sandbox, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", BOX_CHECKS)
def test_a_box_with_a_root_of_its_own_meets_the_contract(
    debian: SharedBoxTarget, name: str
) -> None:
    check(debian, name)


@pytest.mark.engine
@pytest.mark.parametrize("name", BOX_CHECKS)
def test_a_box_in_a_container_meets_the_contract(docker: SharedBoxTarget, name: str) -> None:
    check(docker, name)


def test_the_command_checks_a_box_without_root() -> None:
    made = unprivileged_command("-m", "cellblock.testing.conformance", "box", "--only", "folder")
    if made is None:
        pytest.skip("no Python that a user without rights could start")
    argv, environment = made
    done = subprocess.run(
        argv, env=environment, cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall("^ok .*folder", done.stdout, re.M)) > 3, done.stdout


def test_a_broken_box_fails_the_suite() -> None:
    argv = [sys.executable, "-m", "cellblock.testing.conformance"]
    argv += ["tests.box.broken_box:BrokenBox", "--only", "missing_program"]
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED    a_missing_program_is_exit_code_127" in done.stdout
