"""An unprivileged user, for tests that run as root: how to start Python as that user."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import cellblock

USER = 54321  # belongs to no account
SWITCH_USER = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
_SYSTEM_PYTHON = "/usr/bin/python3"
# The first start may still use rights of root. The second one shows what the user can start.
_CHECK = """
import subprocess, sys
import cellblock.blocks
subprocess.run([sys.executable, "-c", ""], check=True)
sys.exit(sys.argv[1:] != [f"{sys.version_info[0]}.{sys.version_info[1]}"])
"""
# Another version could not import our packages.
_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


def unprivileged_command(*arguments: str) -> tuple[list[str], dict[str, str]] | None:
    """Return the argv and environment that run ``python arguments`` without privileges.

    Return None if no suitable Python exists.
    """
    start = _start_argv()
    return None if start is None else ([*start, *arguments], _environment())


@functools.cache
def _start_argv() -> tuple[str, ...] | None:
    switch = SWITCH_USER if os.geteuid() == 0 else []
    if switch and not shutil.which(switch[0]):
        return None
    for python in _pythons():
        argv = [*switch, python, "-c", _CHECK, _VERSION]
        done = subprocess.run(argv, env=_environment(), cwd="/", capture_output=True, check=False)
        if done.returncode == 0:
            return (*switch, python)
    return None


def _pythons() -> Iterator[str]:
    yield sys.executable
    yield _SYSTEM_PYTHON
    if os.geteuid() == 0:  # other users may not be able to enter the folder of root's Python
        yield _copy_python()


def _copy_python() -> str:
    """Copy the interpreter so that every user can start it. Return the path of the copy.

    The copy is removed when this process ends.
    """
    folder = Path(tempfile.mkdtemp(prefix="cellblock-python-"))
    atexit.register(shutil.rmtree, folder)
    folder.chmod(0o755)
    library = Path("lib", f"python{_VERSION}")
    shutil.copytree(
        Path(sys.base_prefix, library),
        folder / library,
        symlinks=True,
        ignore=shutil.ignore_patterns("site-packages", "test", "config-*", "*.a"),
    )
    for shared in Path(sys.base_prefix, "lib").glob(f"libpython{_VERSION}*.so*"):
        shutil.copy2(shared, folder / "lib")
    program = folder / "bin" / f"python{_VERSION}"
    program.parent.mkdir()
    # The program contains the path of its library. Let the copy find the library beside itself.
    before, after = f"{sys.base_prefix}/lib\0".encode(), b"$ORIGIN/../lib\0"
    content = Path(sys.base_prefix, "bin", program.name).read_bytes()
    program.write_bytes(content.replace(before, after.ljust(len(before), b"\0")))
    program.chmod(0o755)
    return str(program)


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
