"""The one contract, on every executor; and on the sandbox without root."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cellblock.testing.conformance import CHECKS, KNOWN, NotHere, Subject, checks_for
from plain_user import command

SUBJECTS = {
    "sandbox": Subject(KNOWN["sandbox"]),
    "landlock": Subject(KNOWN["sandbox"], {"isolation": "landlock"}),
    "local": Subject(KNOWN["local"]),
    "session": Subject(KNOWN["session"]),
}
# The weaker sandbox has no sockets and no /dev/shm, so multiprocessing does not work in it.
DIFFERENCES = {("landlock", "threads_and_processes_work")}


def cases() -> list[object]:
    found: list[object] = []
    for subject in SUBJECTS:
        for name in checks_for(SUBJECTS[subject]):
            differs = (subject, name) in DIFFERENCES
            mark = pytest.mark.xfail(strict=True, raises=AssertionError) if differs else ()
            found.append(pytest.param(subject, name, marks=mark, id=f"{subject}-{name}"))
    return found


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("subject", "name"), cases())
def test_contract(subject: str, name: str) -> None:
    async def check() -> None:
        await CHECKS[name](SUBJECTS[subject])

    try:
        asyncio.run(check())
    except NotHere as reason:
        pytest.skip(str(reason))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", ["sandbox", "session"])
def test_the_sandbox_keeps_the_contract_without_root(name: str) -> None:
    made = command("-m", "cellblock.testing.conformance", name)
    if made is None:
        pytest.skip("no Python that a user without rights could start")
    argv, environment = made
    done = subprocess.run(argv, env=environment, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\nok ") > 40, done.stdout


def test_the_command_says_what_it_can_check() -> None:
    made = command("-m", "cellblock.testing.conformance", "nonsense")
    if made is None:
        pytest.skip("no Python that a user without rights could start")
    argv, environment = made
    done = subprocess.run(argv, env=environment, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "sandbox" in done.stderr


def test_a_broken_executor_fails_the_suite() -> None:
    argv = [sys.executable, "-m", "cellblock.testing.conformance", "broken_executor:Liar", "--only", "success"]
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED    success_is_zero_and_ok" in done.stdout
