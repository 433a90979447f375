"""The rules of `tests/suite` hold: each test runs pytest on a small file of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_PLUGINS = ("needs", "retry_alone", "unretrieved_errors")

_FLAKY = """
from pathlib import Path

def test_flaky():
    second = Path(__file__).with_name("second")
    assert second.exists() or second.touch()
"""
_BROKEN = """
def test_broken():
    assert "one" == "two"
"""
_LOST_ERROR = """
import asyncio

async def fail():
    raise ValueError("lost")

async def main():
    asyncio.get_running_loop().create_task(fail())
    await asyncio.sleep(0)

def test_forgetful():
    asyncio.run(main())
"""
_NEEDY = """
import pytest

@pytest.mark.engine
def test_needy():
    raise AssertionError

def test_modest():
    pass
"""


def _pytest(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    plugins = " ".join(f"-p tests.suite.{name}" for name in _PLUGINS)
    settings = {"PYTEST_ADDOPTS": f"{plugins} -p xdist", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(_ROOT), **settings},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_test_that_passes_alone_is_flaky_and_does_not_fail_the_run(tmp_path: Path) -> None:
    done = _pytest(tmp_path, _FLAKY, "--retry-alone")
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("\nflaky: test_it.py::test_flaky\n")
    kept = (tmp_path / "build" / "flaky.txt").read_text()
    assert "second.exists()" in kept
    assert "1 passed" in kept


def test_a_test_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    done = _pytest(tmp_path, _BROKEN + _FLAKY, "--retry-alone")
    assert done.returncode == 1
    assert "1 failed, 1 flaky" in done.stdout
    assert done.stdout.endswith("\nflaky: test_it.py::test_flaky\n")


def test_a_file_that_cannot_be_read_is_not_retried(tmp_path: Path) -> None:
    for workers in ("0", "1"):
        done = _pytest(tmp_path, "1 / 0", "--retry-alone", "--numprocesses", workers)
        assert done.returncode != 0, done.stdout


def test_without_the_option_a_flaky_test_fails(tmp_path: Path) -> None:
    assert _pytest(tmp_path, _FLAKY).returncode == 1


def test_an_error_that_nobody_retrieved_fails_its_test(tmp_path: Path) -> None:
    done = _pytest(tmp_path, _LOST_ERROR)
    assert done.returncode == 1
    assert "ERROR at teardown of test_forgetful" in done.stdout
    assert "ValueError: lost" in done.stdout


def test_quick_leaves_out_what_has_a_need(tmp_path: Path) -> None:
    done = _pytest(tmp_path, _NEEDY, "--quick")
    assert "1 passed, 1 deselected" in done.stdout
