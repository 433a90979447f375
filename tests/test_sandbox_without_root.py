"""The same sandbox for a user without rights: all that the other tests of it hold, once more."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from plain_user import command

FILES = sorted(path.name for path in Path(__file__).parent.glob("test_sandbox_*.py") if path != Path(__file__))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", [*FILES, "test_seccomp.py"])
def test_without_root(name: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("the tests themselves run without root")
    here = Path(__file__).parent
    options = ["-q", "--tb=short", "-p", "no:cacheprovider", "-m", "not network"]
    made = command("-m", "pytest", *options, "-c", str(here.parent / "pyproject.toml"), str(here / name))
    if made is None:
        pytest.skip("no Python that a user without rights could start")
    argv, environment = made
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        environment["PYTEST_DEBUG_TEMPROOT"] = folder
        done = subprocess.run(argv, env=environment, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
