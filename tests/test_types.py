"""Type checkers know the results and the parameters of the executors, and accept the examples."""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import cellblock
from cellblock import sync
from tests.docs.markdown_pages import ROOT, blocks

pytestmark = pytest.mark.timeout(300)  # a checker reads the whole library

PRECISE = """
from pathlib import Path
from typing import assert_type

import cellblock
from cellblock import CodeBlock, sync

BLOCKS = [CodeBlock("1", "python")]


async def executors() -> None:
    program = await cellblock.SandboxCommandLineCodeExecutor().execute_code_blocks(BLOCKS)
    assert_type(program.code_file, str | None)
    local = await cellblock.LocalCommandLineCodeExecutor().execute_code_blocks(BLOCKS)
    assert_type(local, cellblock.CommandLineCodeResult)
    session = await cellblock.SandboxSessionCodeExecutor().execute_code_blocks(BLOCKS)
    assert_type(session.output_files, list[Path])
    assert_type(session.session_restored, bool)
    container = await cellblock.DockerSessionCodeExecutor().execute_code_blocks(BLOCKS)
    assert_type(container, cellblock.SessionCodeResult)
    kernel = await cellblock.JupyterCodeExecutor().execute_code_blocks(BLOCKS)
    assert_type(kernel, cellblock.JupyterCodeResult)
    assert_type(session.check(), cellblock.SessionCodeResult)


def sync_executors(folder: Path) -> None:
    with sync.SandboxCommandLineCodeExecutor(30, work_dir=folder) as executor:
        program = executor.execute_code_blocks(BLOCKS)
        assert_type(program, cellblock.CommandLineCodeResult)
    with sync.SandboxSessionServer(preload=["json"]) as server:
        with server.session(timeout=5, work_dir=folder) as session:
            assert_type(session.execute_code_blocks(BLOCKS), cellblock.SessionCodeResult)
            for branch in session.fork(2):
                assert_type(branch, sync.SandboxSessionCodeExecutor)
    with sync.JupyterCodeExecutor("python3") as kernel:
        assert_type(kernel.execute_code_blocks(BLOCKS), cellblock.JupyterCodeResult)
"""
WRONG = """
from cellblock import SandboxCommandLineCodeExecutor, sync

SandboxCommandLineCodeExecutor(workdir="x")
sync.SandboxCommandLineCodeExecutor(workdir="x")
sync.LocalCommandLineCodeExecutor(timeout="x")
sync.DockerCommandLineCodeExecutor(picture="x")
sync.SandboxSessionCodeExecutor(folder="x")
sync.JupyterServerCodeExecutor()
sync.SandboxSessionServer(package=["x"])
sync.SandboxSessionServer().session(workdir="x")
"""


def pyright(file: Path) -> str:
    """Return what pyright reports about `file`."""
    settings = file.with_name("pyrightconfig.json")
    settings.write_text('{"typeCheckingMode": "strict"}')
    command = ["pyright", "--pythonpath", sys.executable, "--project", str(settings)]
    return checked(command, file)


def mypy(file: Path) -> str:
    """Return what mypy reports about `file`. Bodies of untyped functions count."""
    options = ["--strict", "--allow-untyped-defs", "--allow-untyped-calls", "--no-incremental"]
    options += ["--follow-imports=silent", "--python-executable", sys.executable]
    return checked(["mypy", *options, str(file)], file)


def checked(command: list[str], file: Path) -> str:
    if importlib.util.find_spec(command[0]) is None:
        pytest.skip(f"{command[0]} is missing: the extra `dev` has it")
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src"), "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=file.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def errors(report: str) -> list[str]:
    """Return the lines of a report that name an error."""
    return re.findall(r"^.*(?::| -) error: .*$", report, re.MULTILINE)


CHECKERS = pytest.mark.parametrize("checker", [pyright, mypy], ids=["pyright", "mypy"])


def readme_examples() -> list[str]:
    return [block.code for block in blocks(ROOT / "README.md") if block.language == "python"]


@CHECKERS
def test_checkers_accept_the_examples_of_the_readme(
    checker: Callable[[Path], str], tmp_path: Path
) -> None:
    file = tmp_path / "example.py"
    file.write_text("\n".join(readme_examples()))
    report = checker(file)
    assert errors(report) == [], report


@CHECKERS
def test_checkers_know_the_fields_of_each_result(
    checker: Callable[[Path], str], tmp_path: Path
) -> None:
    file = tmp_path / "precise.py"
    file.write_text(PRECISE)
    report = checker(file)
    assert errors(report) == [], report


@CHECKERS
def test_checkers_refuse_wrong_parameters(checker: Callable[[Path], str], tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(WRONG)
    report = checker(file)
    lines = {int(line.split(":")[1]) for line in errors(report)}
    assert lines == set(range(4, 12)), report


@pytest.mark.parametrize("name", sync.__all__)
def test_help_shows_the_parameters_of_a_synchronous_class(name: str) -> None:
    shown, wrapped = (inspect.signature(getattr(module, name)) for module in (sync, cellblock))
    assert list(shown.parameters.values()) == list(wrapped.parameters.values())


def test_help_shows_the_parameters_of_a_session_of_a_server() -> None:
    shown = inspect.signature(sync.SandboxSessionServer.session)
    assert "work_dir" in shown.parameters
