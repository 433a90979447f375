"""Harmless programs that try to pass a protection and report it, run with and without it."""

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
from cellblock.sandbox.probe import unavailable_reason
from cellblock.sync import (
    LocalCommandLineCodeExecutor,
    SandboxCommandLineCodeExecutor,
    SyncCodeExecutor,
)

MARK = "open-sesame"  # what a probe prints when it succeeds
_RETURN_ALLOW = struct.pack("<HBBI", 6, 0, 0, 0x7FFF0000)


def sandbox(work_dir: Path | None = None, **options: Any) -> SandboxCommandLineCodeExecutor:
    """Return a sandbox executor. Skip the test if this machine cannot run a sandbox."""
    if reason := unavailable_reason():
        pytest.skip(f"no full sandbox on this machine: {reason}")
    return SandboxCommandLineCodeExecutor(30, work_dir, **options)


def local(work_dir: Path | None = None, **options: Any) -> LocalCommandLineCodeExecutor:
    """Return an executor without any protection."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LocalCommandLineCodeExecutor(30, work_dir, **options)


def output_of(executor: SyncCodeExecutor, code: str, language: str = "python") -> str:
    """Run one block and return its output, whatever its exit code is."""
    return executor.execute_code_blocks([CodeBlock(code, language)]).output


def checked_output(executor: SyncCodeExecutor, code: str, language: str = "python") -> str:
    """Run one block, which must succeed, and return its output."""
    result = executor.execute_code_blocks([CodeBlock(code, language)])
    assert result.exit_code == 0, result.output
    return result.output.strip()


def _allow_all(**_options: bool) -> bytes:
    return _RETURN_ALLOW


@contextlib.contextmanager
def without_filter() -> Generator[None]:
    """While open, start sandboxes with filters that allow every system call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seccomp, "zygote_program", _allow_all)
        patch.setattr(seccomp, "cell_program", lambda: b"")
        yield


@contextlib.contextmanager
def without_landlock() -> Generator[None]:
    """While open, start sandboxes without Landlock."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(landlock, "abi_version", lambda: 0)
        yield
