"""The sandbox inside a container: with the options that README names, and what is said without one of them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import cellblock
from tests.containers import docker_engine

NAMED = ["--security-opt=seccomp=unconfined", "--security-opt=systempaths=unconfined"]
START = """
from cellblock import CodeBlock, SandboxUnavailable
from cellblock.sync import SandboxCommandLineCodeExecutor
try:
    with SandboxCommandLineCodeExecutor() as executor:
        print(executor.execute_code_blocks([CodeBlock("print('ran')", "python"), CodeBlock("cat /proc/1/comm", "sh")]).output)
except SandboxUnavailable as error:
    print("unavailable:", error)
"""


def said(*options: str) -> str:
    """Give what `START` prints in a container that is started with `options`."""
    machine = docker_engine.running()
    path = [
        str(Path(cellblock.__file__).parent.parent),
        *(entry for entry in sys.path if "site-packages" in entry),
    ]
    shown = [f"--volume={entry}:{entry}:ro" for entry in path]
    fixed = [
        "--rm",
        "--network=none",
        "--tmpfs=/tmp:mode=1777",
        f"--env=PYTHONPATH={os.pathsep.join(path)}",
    ]
    return machine.docker(
        "run", *fixed, *shown, *options, machine.image("python"), "python3", "-c", START
    )


@pytest.mark.parametrize("user", ["0", "1000"])
def test_it_runs_with_the_options_that_are_named(user: str) -> None:
    assert said(*NAMED, f"--user={user}").startswith("ran\n")
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    assert " ".join(option.replace("=", " ", 1) for option in NAMED) in readme


@pytest.mark.parametrize("missing", NAMED)
@pytest.mark.parametrize("user", ["0", "1000"])
def test_without_one_of_them_both_are_named(user: str, missing: str) -> None:
    text = said(*(option for option in NAMED if option != missing), f"--user={user}")
    assert text.startswith("unavailable:"), text
    assert " ".join(option.replace("=", " ", 1) for option in NAMED) in text
