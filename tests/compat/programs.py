"""Run Python programs in processes of their own, in a folder of the test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import cellblock

SOURCE = Path(cellblock.__file__).parent.parent


def run_python(
    folder: Path, *arguments: str, given: str = "", python: Path = Path(sys.executable)
) -> subprocess.CompletedProcess[str]:
    """Run `python` with `arguments` in `folder`, and wait for its end."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "80"}
    return subprocess.run(
        [python, *arguments],
        cwd=folder,
        env=environment,
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )


def output_of(folder: Path, program: str) -> str:
    """Run a program, require success without warnings, and return its output."""
    done = run_python(folder, "-W", "error", "-c", program)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


def last_error_of(folder: Path, program: str) -> str:
    """Run a program that fails; return the last line of its traceback."""
    done = run_python(folder, "-c", program)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr.strip().splitlines()[-1]
