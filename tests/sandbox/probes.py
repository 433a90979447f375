"""Probes: harmless programs that try to get past a wall and say so, to be run with the wall and without it."""

from __future__ import annotations

import contextlib
import struct
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from cellblock import CodeBlock
from cellblock.sandbox import landlock, seccomp
from cellblock.sandbox.probe import unavailable
from cellblock.sync import (
    LocalCommandLineCodeExecutor,
    SandboxCommandLineCodeExecutor,
    SyncCodeExecutor,
)

MARK = "open-sesame"  # what a probe finds when it gets through
_RETURN_ALLOW = struct.pack("<HBBI", 6, 0, 0, 0x7FFF0000)


def sandbox(work_dir: Path | None = None, **options: Any) -> SandboxCommandLineCodeExecutor:
    """Make a sandbox; skip the test where this machine does not allow one."""
    if reason := unavailable():
        pytest.skip(f"no full sandbox here: {reason}")
    return SandboxCommandLineCodeExecutor(30, work_dir, **options)


def local(work_dir: Path | None = None, **options: Any) -> LocalCommandLineCodeExecutor:
    """Make an executor without any wall."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LocalCommandLineCodeExecutor(30, work_dir, **options)


def said(executor: SyncCodeExecutor, code: str, language: str = "python") -> str:
    """Run one block and give its output, whatever its exit code."""
    return executor.execute_code_blocks([CodeBlock(code, language)]).output


def done(executor: SyncCodeExecutor, code: str, language: str = "python") -> str:
    """Run one block, which must succeed, and give its output."""
    result = executor.execute_code_blocks([CodeBlock(code, language)])
    assert result.exit_code == 0, result.output
    return result.output.strip()


@contextlib.contextmanager
def without_filter() -> Generator[None]:
    """Have sandboxes that start meanwhile let every system call through."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seccomp, "zygote_program", lambda: _RETURN_ALLOW)
        patch.setattr(seccomp, "cell_program", lambda: b"")
        yield


@contextlib.contextmanager
def without_landlock() -> Generator[None]:
    """Have sandboxes that start meanwhile do without Landlock."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(landlock, "abi", lambda: 0)
        yield
