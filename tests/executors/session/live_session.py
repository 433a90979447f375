"""Live sessions in plain calls, for tests; many on one server, since that starts once."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Generator
from pathlib import Path
from typing import Any, Self, TypeVar

import pytest

from cellblock import (
    Checkpoint,
    CodeBlock,
    SandboxSessionCodeExecutor,
    SandboxSessionServer,
    SessionCodeResult,
)
from cellblock.aio.background_loop import engine
from cellblock.executors.session.checkpointing import CopiedSession
from cellblock.sandbox.probe import unavailable

T = TypeVar("T")

RESTORED = "The session was restored: its variables are as they were before this block."


def wait(work: Coroutine[Any, Any, T]) -> T:
    """Do `work` and give what comes of it."""
    return engine().wait(work)


class Live:
    """A session; `with` stops it."""

    def __init__(self, executor: CopiedSession) -> None:
        self.executor = executor

    @property
    def folder(self) -> Path:
        """Its work folder."""
        return Path(self.executor.work_dir)

    def run(self, code: str, language: str = "python") -> SessionCodeResult:
        """Run one block."""
        result = wait(self.executor.execute_code_blocks([CodeBlock(code, language)]))
        assert isinstance(result, SessionCodeResult)
        return result

    def said(self, code: str) -> str:
        """Run one block and give its output, whatever its exit code."""
        return self.run(code).output.strip()

    def done(self, code: str, language: str = "python") -> str:
        """Run one block, which must succeed, and give its output."""
        result = self.run(code, language)
        assert (result.exit_code, result.outcome) == (0, "ok"), result
        return result.output.strip()

    def checkpoint(self, lifetime_seconds: float | None = None) -> Checkpoint:
        """Freeze a copy."""
        return wait(self.executor.checkpoint(lifetime_seconds=lifetime_seconds))

    def restore(self, mark: Checkpoint) -> None:
        """Go back."""
        wait(self.executor.restore(mark))

    def fork(self, count: int = 1, mark: Checkpoint | None = None) -> list[Live]:
        """Branch off. Each branch is to be stopped."""
        return [Live(branch) for branch in wait(self.executor.fork(count, mark=mark))]

    def get(self, name: str) -> Any:
        """Give a value."""
        return wait(self.executor.get(name))

    def set(self, name: str, value: Any) -> None:
        """Set a value."""
        wait(self.executor.set(name, value))

    def stop(self) -> None:
        """End it."""
        wait(self.executor.stop())

    def __enter__(self) -> Self:
        wait(self.executor.start())
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def need_sandbox() -> None:
    """Skip the test where this machine does not allow a sandbox."""
    if reason := unavailable():
        pytest.skip(f"no full sandbox here: {reason}")


@contextlib.contextmanager
def server(**options: Any) -> Generator[SandboxSessionServer]:
    """Give a server that runs; skip the test where this machine does not allow a sandbox."""
    need_sandbox()
    running = SandboxSessionServer(**options)
    wait(running.__aenter__())
    try:
        yield running
    finally:
        wait(running.__aexit__(None, None, None))


def session(
    on: SandboxSessionServer | None,
    work_dir: Path | None = None,
    *,
    timeout: float = 15,
    **options: Any,
) -> Live:
    """Make a session, on a server or on one of its own."""
    need_sandbox()
    return Live(SandboxSessionCodeExecutor(timeout, work_dir, server=on, **options))


@contextlib.contextmanager
def forked(parent: Live, count: int = 1, mark: Checkpoint | None = None) -> Generator[list[Live]]:
    """Give branches of `parent`, and stop them."""
    branches = parent.fork(count, mark)
    try:
        yield branches
    finally:
        for branch in branches:
            branch.stop()
