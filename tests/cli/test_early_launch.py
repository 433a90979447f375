"""`cellblock run` starts its sandbox while Python still imports the executor."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.suite.tiers import exhaustive

# Prints, whenever a process is started, whether the event loop's modules are imported.
WATCH = """
import sys
from cellblock.cli import main

def watch(event, _):
    if event == "subprocess.Popen":
        print("asyncio" in sys.modules, file=sys.stderr)

sys.addaudithook(watch)
main(sys.argv[1:])
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WATCH, "run", *arguments]
    return subprocess.run(command, text=True, capture_output=True, check=False)


@pytest.mark.parametrize("options", exhaustive([[], ["--network"], ["--memory", "1G", "--json"]]))
def test_the_only_server_starts_before_the_event_loop_is_imported(options: list[str]) -> None:
    done = run(*options, "-c", "print(1)")
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if line in ("True", "False")] == ["False"]


def test_other_executors_start_no_sandbox() -> None:
    assert "False" not in run("--executor", "local", "-c", "print(1)").stderr.splitlines()


def test_a_sandbox_that_is_not_used_leaves_nothing(temporary: Path) -> None:
    done = run("missing.md")
    assert (done.returncode, "False" in done.stderr.splitlines()) == (2, True), done.stderr
    while any(temporary.iterdir()):  # the server ends after the command
        time.sleep(0.01)
