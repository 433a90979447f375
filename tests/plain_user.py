"""A user without rights, for tests that run as root: how to start a Python as that user."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import cellblock

USER = 54321  # nobody's
BECOME = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
_SYSTEM_PYTHON = "/usr/bin/python3"
# The program that becomes the user may start more than the user then can: only a second start tells.
_TRIAL = """
import subprocess, sys
import cellblock.blocks
subprocess.run([sys.executable, "-c", ""], check=True)
sys.exit(sys.version_info < (3, 11))
"""


def command(*arguments: str) -> tuple[list[str], dict[str, str]] | None:
    """Give the argv and the environment that run ``python arguments`` without rights; None when that cannot be done."""
    start = _start()
    return None if start is None else ([*start, *arguments], _environment())


@functools.cache
def _start() -> tuple[str, ...] | None:
    become = BECOME if os.geteuid() == 0 else []
    if become and not shutil.which(become[0]):
        return None
    # Root's own interpreter may lie in a folder that others cannot enter.
    for python in (sys.executable, _SYSTEM_PYTHON):
        argv = [*become, python, "-c", _TRIAL]
        if (
            subprocess.run(
                argv, env=_environment(), cwd="/", capture_output=True, check=False
            ).returncode
            == 0
        ):
            return (*become, python)
    return None


def _environment() -> dict[str, str]:
    path = [
        str(Path(cellblock.__file__).parent.parent),
        *(entry for entry in sys.path if "site-packages" in entry),
    ]
    return {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": "/nonexistent",
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
