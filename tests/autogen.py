"""Pythons in which AutoGen is installed, for tests that run it beside Cellblock."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from cellblock.environments.virtualenv import environment_for, python_of
from tests.frameworks import framework_python

ROOT = Path(__file__).parents[1]
AUTOGEN = ("autogen-agentchat==0.7.5", "autogen-ext[openai]==0.7.5")
AUTOGEN_02 = ("autogen-agentchat==0.2.40",)


@pytest.fixture(scope="session")
def autogen_python() -> Path:
    """Return a Python with AutoGen 0.7.5 and our dependencies."""
    return framework_python(*AUTOGEN)


@pytest.fixture(scope="session")
def autogen_02_python() -> Path:
    """Return a Python with AutoGen 0.2.40 alone. It is in the cache of environments."""
    return python_of(asyncio.run(environment_for(AUTOGEN_02)))


def run_python(python: Path, *arguments: str) -> str:
    """Run `python` with Cellblock's source, require success, and return its output."""
    done = subprocess.run(
        [python, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
