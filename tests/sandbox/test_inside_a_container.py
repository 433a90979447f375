"""The sandbox inside a container, with the documented options and without one of them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import cellblock
from tests.containers import docker_engine

pytestmark = pytest.mark.engine
DOCUMENTED = ["--security-opt=seccomp=unconfined", "--security-opt=systempaths=unconfined"]
START = """
from cellblock import CodeBlock, SandboxUnavailable
from cellblock.sync import SandboxCommandLineCodeExecutor
try:
    with SandboxCommandLineCodeExecutor() as executor:
        blocks = [CodeBlock("print('ran')", "python"), CodeBlock("cat /proc/1/comm", "sh")]
        print(executor.execute_code_blocks(blocks).output)
except SandboxUnavailable as error:
    print("unavailable:", error)
"""


def output_of(*options: str) -> str:
    """Return what `START` prints in a container that is started with `options`."""
    engine = docker_engine.shared_engine()
    path = [
        str(Path(cellblock.__file__).parent.parent),
        *(entry for entry in sys.path if "site-packages" in entry),
    ]
    volumes = [f"--volume={entry}:{entry}:ro" for entry in path]
    fixed = [
        "--rm",
        "--network=none",
        "--tmpfs=/tmp:mode=1777",
        f"--env=PYTHONPATH={os.pathsep.join(path)}",
    ]
    return engine.docker(
        "run", *fixed, *volumes, *options, engine.test_image("python"), "python3", "-c", START
    )


@pytest.mark.parametrize("user", ["0", "1000"])
def test_sandbox_runs_with_the_documented_options(user: str) -> None:
    assert output_of(*DOCUMENTED, f"--user={user}").startswith("ran\n")
    page = (Path(__file__).parents[2] / "docs" / "sandbox.md").read_text(encoding="utf-8")
    command = " ".join(page.replace("\\\n", " ").split())
    assert " ".join(option.replace("=", " ", 1) for option in DOCUMENTED) in command


@pytest.mark.parametrize("missing", DOCUMENTED)
@pytest.mark.parametrize("user", ["0", "1000"])
def test_error_names_both_options_if_one_is_missing(user: str, missing: str) -> None:
    text = output_of(*(option for option in DOCUMENTED if option != missing), f"--user={user}")
    assert text.startswith("unavailable:"), text
    assert " ".join(option.replace("=", " ", 1) for option in DOCUMENTED) in text
