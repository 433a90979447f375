"""The rules of `tests/suite` hold: each test runs pytest on a small file of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PLUGINS = ("price", "retry_alone", "tiers", "unretrieved_errors")

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
_TIERS = """
import pytest
from tests.suite.tiers import exhaustive

@pytest.mark.slow
def test_slow():
    pass

@pytest.mark.parametrize("number", exhaustive([1, pytest.param(2, id="two"), 3], keep=1))
def test_numbers(number):
    pass
"""
_ALL_EXHAUSTIVE = """
import pytest

@pytest.mark.exhaustive
def test_lost():
    pass
"""
_BURNS = """
import subprocess, sys, time
import pytest
from tests.suite import price

price.MOST_SECONDS = 0.2
BURN = "import time\\nend = time.process_time() + 0.7\\nwhile time.process_time() < end: pass"

def test_burns():
    exec(BURN)

def test_a_child_burns():
    subprocess.run([sys.executable, "-c", BURN], check=True)

def test_a_child_that_lives_burns(request):
    child = subprocess.Popen(
        [sys.executable, "-c", BURN + "\\nprint(flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )
    request.addfinalizer(child.communicate)
    child.stdout.readline()

@pytest.fixture(scope="module")
def shared():
    subprocess.run([sys.executable, "-c", BURN], check=True)

def test_a_shared_fixture_burns(shared):
    pass

def test_waits():
    time.sleep(1)

@pytest.mark.slow
def test_is_slow():
    exec(BURN)
    exec(BURN)

@pytest.mark.slow
def test_is_called_slow():
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
    assert re.search(r"\nflaky: test_it.py::test_flaky: .*assert .*\n\Z", done.stdout), done.stdout
    kept = (tmp_path / "build" / "flaky.txt").read_text()
    assert "second.exists()" in kept
    assert "1 passed" in kept


def test_a_test_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    done = _pytest(tmp_path, _BROKEN + _FLAKY, "--retry-alone")
    assert done.returncode == 1
    assert "1 failed, 1 flaky" in done.stdout
    assert "\nflaky: test_it.py::test_flaky: " in done.stdout


@pytest.mark.slow
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


def test_the_default_tier_leaves_out_what_is_slow_or_a_further_case(tmp_path: Path) -> None:
    assert " 1 passed in" in _pytest(tmp_path, _TIERS, "--numprocesses", "1").stdout
    assert "2 passed, 2 deselected" in _pytest(tmp_path, _TIERS, "--all", "-m", "exhaustive").stdout
    assert "4 passed" in _pytest(tmp_path, _TIERS, "test_it.py").stdout


def test_a_function_whose_cases_are_all_exhaustive_is_refused(tmp_path: Path) -> None:
    done = _pytest(tmp_path, _ALL_EXHAUSTIVE)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "test_it.py::test_lost" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_test_that_uses_too_much_cpu_time_fails(tmp_path: Path, workers: str) -> None:
    done = _pytest(tmp_path, _BURNS, "--all", "--numprocesses", workers)
    failed = set(re.findall(r"FAILED test_it.py::(\w+) - Failed: This test used", done.stdout))
    assert failed == {"test_burns", "test_a_child_burns", "test_a_child_that_lives_burns"}
    assert re.search(r"0\.[7-9] test_it.py::test_a_shared_fixture_burns", done.stdout)
    assert "4 passed" in done.stdout
    cheap = done.stdout.partition("marked slow, but used less")[2]
    assert "::test_is_called_slow" in cheap
    assert "::test_is_slow" not in cheap
