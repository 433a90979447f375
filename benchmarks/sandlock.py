"""The package `sandlock`: a program in its sandbox, and its forks of a process.

Run as a program, this module forks, in a fresh process.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from benchmarks.measure import Call, run_in_fresh_process

MISSING = "sandlock is not installed: install the extra `bench`"
_READABLE = ("/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/dev")


def is_installed() -> bool:
    """Return True if the package is installed."""
    return importlib.util.find_spec("sandlock") is not None


@contextlib.contextmanager
def runner(code: str) -> Generator[Call | None]:
    """Yield a call that runs a file with `code` in a sandbox, or None without the package."""
    if not is_installed():
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "block.py")
        file.write_text(code, encoding="utf-8")
        sandbox = _sandbox(fs_writable=[folder])

        def run() -> str:
            result = sandbox.run([sys.executable, str(file)])
            if not result.success:
                raise RuntimeError(f"sandlock failed: {result.stderr!r}")
            return result.stdout.decode()

        yield run


def fork_seconds(count: int, *modules: str) -> float:
    """Return the seconds to fork a process that has imported `modules`, and to read the results."""
    return run_in_fresh_process(__name__, str(count), *modules)


def _sandbox(**options: Any) -> Any:
    readable = filter(os.path.exists, {*_READABLE, sys.prefix, sys.base_prefix})
    return importlib.import_module("sandlock").Sandbox(fs_readable=list(readable), **options)


def _fork(count: int, *modules: str) -> float:
    for name in modules:
        importlib.import_module(name)
    forking = _sandbox(init_fn=lambda: None, work_fn=print)
    reader = _sandbox()
    started = time.perf_counter()
    result = reader.reduce(["cat"], forking.fork(count))
    seconds = time.perf_counter() - started
    if sorted(map(int, result.stdout.split())) != list(range(count)):
        raise RuntimeError(f"sandlock failed: {result.stdout!r} {result.stderr!r}")
    return seconds


if __name__ == "__main__":
    print(json.dumps(_fork(int(sys.argv[1]), *sys.argv[2:])))
