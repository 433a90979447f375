"""Run the command `cellblock`, for tests."""

from __future__ import annotations

import subprocess
import sys

from tests.command_server import CommandProcess, run_command

__all__ = ["COMMAND", "notes", "run_command", "run_locally", "start_run"]

COMMAND = [sys.executable, "-m", "cellblock"]


def run_locally(*arguments: str, given: str | bytes = b"") -> subprocess.CompletedProcess[str]:
    """Run code with the local executor, which is the fastest."""
    return run_command("run", "--executor", "local", *arguments, given=given)


def notes(text: str) -> list[str]:
    """Return the notes in `text`, without the warning of the local executor."""
    lines = [line.removeprefix("--- ") for line in text.splitlines() if line.startswith("--- ")]
    return [line for line in lines if not line.startswith("Using LocalCommandLineCodeExecutor")]


def start_run(*arguments: str) -> CommandProcess[bytes]:
    """Start `cellblock run`; the caller waits for its end."""
    return CommandProcess(["run", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
