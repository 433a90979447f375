"""Run Python in a process of its own, with the packages of this one."""

from __future__ import annotations

import os
import subprocess
import sys


def environment_with_packages(**variables: str) -> dict[str, str]:
    """Return the environment of a Python that finds the packages of this one."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **variables}


def run_python(code: str, *arguments: object, isolated: bool = False) -> str:
    """Run a program, which must succeed, and return its output. `isolated`: without packages."""
    argv = [sys.executable, *(["-I", "-S"] if isolated else []), "-c", code, *map(str, arguments)]
    done = subprocess.run(
        argv,
        env=environment_with_packages(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
