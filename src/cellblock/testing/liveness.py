"""Find out from outside whether a program that a block started still runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

# Appends to a file while it runs. This can be observed on every backend.
HEARTBEAT = """
import time
while True:
    with open({name!r}, "a") as file:
        file.write("x")
    time.sleep(0.02)
"""


def heartbeat(name: str) -> str:
    """Return the source of a program that appends to the file `name` while it runs."""
    return HEARTBEAT.format(name=name)


async def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Wait for `condition`. Raise `AssertionError` with `what` after `seconds`."""
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"did not happen in {seconds} seconds: {what}")


async def assert_dead(*files: Path) -> None:
    """Raise `AssertionError` if a program that writes to a file runs or was never started."""
    for file in files:
        assert file.exists(), f"{file.name}: the program was never started"
    sizes = [file.stat().st_size for file in files]
    await asyncio.sleep(0.3)  # a program that runs writes more than ten times
    for file, size in zip(files, sizes, strict=True):
        assert file.stat().st_size == size, f"{file.name}: the program is still running"


async def wait_until_dead(file: Path) -> None:
    """Wait until the program that writes to `file` ends, if its end is not reported otherwise.

    Raise `AssertionError` after about a minute, or if the program was never started.
    """
    assert file.exists(), f"{file.name}: the program was never started"
    for _ in range(200):
        size = file.stat().st_size
        await asyncio.sleep(0.3)
        if file.stat().st_size == size:
            return
    raise AssertionError(f"{file.name}: the program is still running")
