"""Run the command `cellblock` in a process of its own, for tests."""

from __future__ import annotations

import subprocess
import sys

COMMAND = [sys.executable, "-m", "cellblock"]


def run_command(*arguments: str, given: str | bytes = b"") -> subprocess.CompletedProcess[str]:
    """Run the command and wait for its end."""
    data = given.encode() if isinstance(given, str) else given
    done = subprocess.run(
        [*COMMAND, *arguments], input=data, capture_output=True, timeout=20, check=False
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def run_locally(*arguments: str, given: str | bytes = b"") -> subprocess.CompletedProcess[str]:
    """Run code with the local executor, which is the fastest."""
    return run_command("run", "--executor", "local", *arguments, given=given)


def notes(text: str) -> list[str]:
    """Return the notes in `text`, without the warning of the local executor."""
    lines = [line.removeprefix("--- ") for line in text.splitlines() if line.startswith("--- ")]
    return [line for line in lines if not line.startswith("Using LocalCommandLineCodeExecutor")]


def start_run(*arguments: str) -> subprocess.Popen[bytes]:
    """Start `cellblock run`; the caller waits for its end."""
    return subprocess.Popen(
        [*COMMAND, "run", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
