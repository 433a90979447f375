"""Python programs in processes of their own, which can import what the tests can."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plain_user import unprivileged_command


def run_python(
    *arguments: str | Path, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `python ARGUMENTS`, and return what it printed."""
    return subprocess.run(
        [sys.executable, *arguments],
        env=_environment(environment),
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def start_python(*arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
    """Start `python ARGUMENTS`, whose output can be read from its `stdout`."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        env=_environment(environment),
        stdout=subprocess.PIPE,
        text=True,
    )


def run_as_plain_user(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python ARGUMENTS` as a user without rights, or skip the test."""
    made = unprivileged_command(*arguments)
    if made is None:
        pytest.skip("there is no Python that a user without rights could start")
    argv, own = made
    return subprocess.run(
        argv, env={**own, **environment}, cwd="/", capture_output=True, text=True, check=False
    )


def _environment(added: dict[str, str]) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **added}
