"""A Python in which AutoGen 0.7.5 is installed, for tests that run it beside Cellblock."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.frameworks import framework_python

ROOT = Path(__file__).parents[1]
AUTOGEN = ("autogen-agentchat==0.7.5", "autogen-ext[openai]==0.7.5")


@pytest.fixture(scope="session")
def autogen_python() -> Path:
    """Return a Python with AutoGen and our dependencies."""
    return framework_python(*AUTOGEN)


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
