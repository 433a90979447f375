"""LiveSession: a session executor with synchronous methods, for tests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Generator, Sequence
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
from cellblock.aio.background_loop import background_loop
from cellblock.executors.session.base import SessionExecutor
from cellblock.sandbox.probe import unavailable_reason
from cellblock.testing.liveness import wait_until

T = TypeVar("T")

RESTORED = "The session was restored: its variables are as they were before this block."


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the background loop and return its result."""
    return background_loop().run(work)


class LiveSession:
    """A session with synchronous methods. `with` starts and stops it."""

    def __init__(self, executor: SessionExecutor) -> None:
        self.executor = executor

    @property
    def folder(self) -> Path:
        """The work folder of the session."""
        return Path(self.executor.work_dir)

    def run(self, code: str, language: str = "python") -> SessionCodeResult:
        """Run one block and return its result."""
        result = run_async(self.executor.execute_code_blocks([CodeBlock(code, language)]))
        assert isinstance(result, SessionCodeResult)
        return result

    def output_of(self, code: str) -> str:
        """Run one block and return its output. Ignore its exit code."""
        return self.run(code).output.strip()

    def run_ok(self, code: str, language: str = "python") -> str:
        """Run one block, check that it succeeds, and return its output."""
        result = self.run(code, language)
        assert (result.exit_code, result.outcome) == (0, "ok"), result
        return result.output.strip()

    def crash(self, code: str = "import os; os._exit(3)") -> SessionCodeResult:
        """Run a block that ends the session's process, and check that no variable is lost."""
        ended = self.run(code)
        lost = (ended.session_restored, ended.lost_blocks, ended.notice)
        assert lost == (True, 0, RESTORED), ended
        return ended

    def checkpoint(self, lifetime_seconds: float | None = None) -> Checkpoint:
        """Create a checkpoint."""
        return run_async(self.executor.checkpoint(lifetime_seconds=lifetime_seconds))

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore a checkpoint."""
        run_async(self.executor.restore(checkpoint))

    def fork(self, count: int = 1, checkpoint: Checkpoint | None = None) -> list[LiveSession]:
        """Fork the session. The caller must stop the branches."""
        return [
            LiveSession(branch)
            for branch in run_async(self.executor.fork(count, checkpoint=checkpoint))
        ]

    def get(self, name: str) -> Any:
        """Return the value of a variable."""
        return run_async(self.executor.get(name))

    def set(self, name: str, value: Any) -> None:
        """Set a variable."""
        run_async(self.executor.set(name, value))

    def stop(self) -> None:
        """Stop the session."""
        run_async(self.executor.stop())

    def __enter__(self) -> Self:
        run_async(self.executor.start())
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def skip_without_sandbox() -> None:
    """Skip the test if this machine does not support the sandbox."""
    if reason := unavailable_reason():
        pytest.skip(f"the sandbox is not available: {reason}")


@contextlib.contextmanager
def open_server(**options: Any) -> Generator[SandboxSessionServer]:
    """Yield a running server. Skip the test if this machine does not support the sandbox."""
    skip_without_sandbox()
    running = SandboxSessionServer(**options)
    run_async(running.__aenter__())
    try:
        yield running
    finally:
        run_async(running.__aexit__(None, None, None))


def open_session(
    server: SandboxSessionServer | None,
    work_dir: Path | None = None,
    *,
    timeout: float | None = 15,
    **options: Any,
) -> LiveSession:
    """Create a session on `server`, or on a private one if it is None."""
    skip_without_sandbox()
    return LiveSession(SandboxSessionCodeExecutor(timeout, work_dir, server=server, **options))


async def meet(executors: Sequence[SessionExecutor]) -> None:
    """Run a block on each executor. The blocks end when all of them run."""
    code = "import os, time\nopen('here', 'w').close()\n"
    code += "while not os.path.exists('go'): time.sleep(0.01)"
    running = [
        asyncio.ensure_future(executor.execute_code_blocks([CodeBlock(code, "python")]))
        for executor in executors
    ]
    folders = [Path(executor.work_dir) for executor in executors]
    await wait_until(lambda: all((folder / "here").exists() for folder in folders), "all run")
    for folder in folders:
        (folder / "go").touch()
    assert [(await task).outcome for task in running] == ["ok"] * len(executors)


@contextlib.contextmanager
def forked(
    parent: LiveSession, count: int = 1, checkpoint: Checkpoint | None = None
) -> Generator[list[LiveSession]]:
    """Yield branches of `parent` and stop them at the end."""
    branches = parent.fork(count, checkpoint)
    try:
        yield branches
    finally:
        for branch in branches:
            branch.stop()


def use_in_all_copies(live: LiveSession, use: str) -> None:
    """Run `use` in copies of all kinds, and in the session after each of them was made."""
    checkpoint = live.checkpoint()
    live.run_ok(use)
    with forked(live, checkpoint=checkpoint) as (branch,):
        branch.run_ok("block = 1")
        branch.crash()
        branch.run_ok(f"assert block == 1\n{use}")
    for number in range(3):
        live.restore(checkpoint)
        live.run_ok(f"block = {number}")
        live.crash()
        live.run_ok(f"assert block == {number}\n{use}")
    live.restore(checkpoint)
    with forked(live) as (branch,):
        branch.run_ok(use)
        live.run_ok(use)
