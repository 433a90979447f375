"""Every home of a box meets the contract."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from cellblock.testing.conformance import BOX_CHECKS
from tests.box.shared_box import SharedBoxTarget
from tests.executors.programs import run_as_plain_user, run_python
from tests.executors.session import session_image
from tests.executors.shared_executor import skipping
from tests.suite.tiers import exhaustive

pytestmark = pytest.mark.depends_on_user
NEEDS_USERS = "a_command_runs_as_the_user_that_is_named"
SLOW = {"a_download_to_a_slow_file_waits_in_the_box", "a_large_file_does_not_hold_up_others"}
CASES = [
    pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [], id=name)
    for name in BOX_CHECKS
]


def opened(**options: object) -> Iterator[SharedBoxTarget]:
    target = SharedBoxTarget("cellblock:Sandbox", options)
    yield target
    asyncio.run(target.close())


@pytest.fixture(scope="module")
def sandbox(needs_sandbox: None) -> Iterator[SharedBoxTarget]:
    yield from opened()


@pytest.fixture(scope="module")
def sandbox_with_users(needs_sandbox: None) -> Iterator[SharedBoxTarget]:
    yield from opened(users=True)


@pytest.fixture(scope="module")
def kept_sandbox(needs_sandbox: None) -> Iterator[SharedBoxTarget]:
    yield from opened(kept=True)


@pytest.fixture(scope="module")
def debian(needs_sandbox: None) -> Iterator[SharedBoxTarget]:
    root = Path.home() / ".cache" / "cellblock-ci" / "debian-bookworm"
    if not (root / ".complete").exists():
        pytest.skip("no root by debootstrap: .ci/bare-debian makes it")
    yield from opened(root=str(root), users=True)


@pytest.fixture(scope="module")
def docker() -> Iterator[SharedBoxTarget]:
    with pytest.MonkeyPatch.context() as patch:
        image = session_image.use_session_image(patch)
        target = SharedBoxTarget("cellblock:DockerSandbox", {"image": image})
        yield target
        asyncio.run(target.close())


async def check(target: SharedBoxTarget, name: str) -> None:
    with skipping():
        await BOX_CHECKS[name](target)


def further(cases: Iterable[ParameterSet]) -> list[Any]:
    """Return the checks for a home of boxes that is not the sandbox, which has all of them.

    In the default tier they are those of shells.
    """
    return exhaustive(
        cases, keep=lambda case: BOX_CHECKS[case.values[0]].__module__.endswith(".shells")
    )


@pytest.mark.parametrize("name", [name for name in BOX_CHECKS if "user" in name])
async def test_a_box_with_several_users_meets_the_contract(
    sandbox_with_users: SharedBoxTarget, name: str
) -> None:
    await check(sandbox_with_users, name)


LIMITS = [name for name, check in BOX_CHECKS.items() if check.__module__.endswith(".limits")]


@pytest.mark.parametrize("name", exhaustive(LIMITS))
async def test_limits_hold_for_a_box_with_several_users(
    sandbox_with_users: SharedBoxTarget, name: str
) -> None:
    await check(sandbox_with_users, name)


@pytest.mark.parametrize("name", exhaustive(LIMITS))
async def test_limits_hold_for_a_kept_box(kept_sandbox: SharedBoxTarget, name: str) -> None:
    await check(kept_sandbox, name)


@pytest.mark.parametrize("name", [case for case in CASES if case.id != NEEDS_USERS])
async def test_a_box_in_the_sandbox_meets_the_contract(sandbox: SharedBoxTarget, name: str) -> None:
    await check(sandbox, name)


@pytest.mark.parametrize("name", further(CASES))
async def test_a_box_with_a_root_of_its_own_meets_the_contract(
    debian: SharedBoxTarget, name: str
) -> None:
    await check(debian, name)


@pytest.mark.engine
@pytest.mark.parametrize("name", further(CASES))
async def test_a_box_in_a_container_meets_the_contract(docker: SharedBoxTarget, name: str) -> None:
    await check(docker, name)


@pytest.mark.slow
def test_the_command_checks_a_box_without_root() -> None:
    done = run_as_plain_user("-m", "cellblock.testing.conformance", "box", "--only", "missing")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall("^ok .*missing", done.stdout, re.M)) == 3, done.stdout


def test_a_broken_box_fails_the_suite() -> None:
    box = "tests.box.broken_box:BrokenBox"
    done = run_python("-m", "cellblock.testing.conformance", box, "--only", "missing_program")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED    a_missing_program_is_exit_code_127" in done.stdout
