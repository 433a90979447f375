"""The command `cellblock` in a process of its own, for tests."""

from __future__ import annotations

import subprocess
import sys

COMMAND = [sys.executable, "-m", "cellblock"]


def run(*arguments: str, given: str | bytes = b"") -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    data = given.encode() if isinstance(given, str) else given
    done = subprocess.run(
        [*COMMAND, *arguments], input=data, capture_output=True, timeout=20, check=False
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def local(*arguments: str, given: str | bytes = b"") -> subprocess.CompletedProcess[str]:
    """Run code where that is fastest: the test is about the command."""
    return run("run", "--executor", "local", *arguments, given=given)


def notes(text: str) -> list[str]:
    """Give our notes, without the local executor's warning."""
    lines = [line.removeprefix("--- ") for line in text.splitlines() if line.startswith("--- ")]
    return [line for line in lines if not line.startswith("Using LocalCommandLineCodeExecutor")]


def begin(*arguments: str) -> subprocess.Popen[bytes]:
    """Begin to run code; the caller waits for its end."""
    return subprocess.Popen(
        [*COMMAND, "run", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
