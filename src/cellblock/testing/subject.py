"""Subject: the executor under test, as its checks see it, and the list that checks enter themselves in."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import tempfile
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..blocks import CodeBlock
from ..executors.base import CodeExecutor
from ..results import CodeResult

# Names on the command line of `python -m cellblock.testing.conformance`.
KNOWN = {
    "sandbox": "cellblock:SandboxCommandLineCodeExecutor",
    "local": "cellblock:LocalCommandLineCodeExecutor",
    "session": "cellblock:SandboxSessionCodeExecutor",
    "docker": "cellblock:DockerCommandLineCodeExecutor",
    "docker-session": "cellblock:DockerSessionCodeExecutor",
    "jupyter": "cellblock:JupyterCodeExecutor",
}


class NotHere(Exception):
    """A check needs something that this machine or this executor does not have; the message says what."""


@dataclass(frozen=True)
class Subject:
    """The executor class `factory`, written as ``module:attribute``, and what it is always made with."""

    factory: str
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def live(self) -> bool:
        """Whether blocks share one live interpreter; else each has a fresh process."""
        return bool(getattr(self._class(), "is_live", False))

    def _class(self) -> Any:
        module, _, attribute = self.factory.partition(":")
        return getattr(importlib.import_module(module), attribute)

    def make(self, **options: Any) -> CodeExecutor:
        """Make an executor. Warnings that it is not safe are expected here."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._class()(**{**self.options, **options})

    @contextlib.asynccontextmanager
    async def executor(self, **options: Any) -> AsyncGenerator[tuple[CodeExecutor, Path]]:
        """Give a started executor and its work folder."""
        with tempfile.TemporaryDirectory(
            prefix="cellblock-check-", ignore_cleanup_errors=True
        ) as folder:
            async with self.make(**{"work_dir": folder, "timeout": 30, **options}) as executor:
                yield executor, Path(folder)

    async def run(self, code: str, language: str = "python", **options: Any) -> CodeResult:
        """Run one block in an executor of its own."""
        async with self.executor(**options) as (executor, _):
            return await executor.execute_code_blocks([CodeBlock(code, language)])


Check = Callable[[Subject], Awaitable[None]]
CHECKS: dict[str, Check] = {}
_MODES: dict[str, bool] = {}  # of those checks that are about one mode: whether it is the live one


def check(function: Check) -> Check:
    """Enter `function` in the list under its name."""
    CHECKS[getattr(function, "__name__", repr(function))] = function
    return function


def check_fresh(function: Check) -> Check:
    """Enter `function` for executors whose blocks are fresh processes."""
    _MODES[getattr(function, "__name__", repr(function))] = False
    return check(function)


def check_live(function: Check) -> Check:
    """Enter `function` for executors whose blocks share one live interpreter."""
    _MODES[getattr(function, "__name__", repr(function))] = True
    return check(function)


def checks_for(subject: Subject) -> dict[str, Check]:
    """Give the checks that are about `subject`, by name."""
    live = subject.live
    return {name: function for name, function in CHECKS.items() if _MODES.get(name, live) == live}


# Appends to a file as long as it lives: from outside, the one sign of life that every place can give.
HEARTBEAT = """
import time
while True:
    with open({name!r}, "a") as file:
        file.write("x")
    time.sleep(0.02)
"""


def heartbeat(name: str) -> str:
    """Give the source of a program that shows by the file `name` that it lives."""
    return HEARTBEAT.format(name=name)


async def until(condition: Callable[[], bool], what: str, seconds: float = 15) -> None:
    """Wait for `condition`; AssertionError with `what` when it never comes."""
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"never came true: {what}")


async def assert_dead(file: Path) -> None:
    """Raise AssertionError when what writes to `file` lives, or never did."""
    assert file.exists(), f"{file.name}: the program never lived"
    size = file.stat().st_size
    await asyncio.sleep(0.3)
    assert file.stat().st_size == size, f"{file.name}: the program still lives"


async def until_dead(file: Path) -> None:
    """Wait for the end of what writes to `file`; for ends that nobody reports. AssertionError when it goes on living."""
    assert file.exists(), f"{file.name}: the program never lived"
    for _ in range(50):
        size = file.stat().st_size
        await asyncio.sleep(0.3)
        if file.stat().st_size == size:
            return
    raise AssertionError(f"{file.name}: the program still lives")
