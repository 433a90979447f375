"""What is made before code runs: the executor that was asked for, and its work folder."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import time
import warnings
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import WorkspaceError
from ..executors.base import CodeExecutor
from ..limits import LOCAL_LIMITS, SANDBOX_LIMITS, Limits
from ..policy import Policy
from .settings import Settings
from .stdio import Note

if TYPE_CHECKING:
    from ..events import PullProgress
    from ..executors.session.sandbox import SandboxSessionCodeExecutor

WORK_DIR = "coding"
_BETWEEN = 1.0  # seconds between two notes about an image that is being fetched
_INSTALLER = "cellblock.environments.uv"  # the logger of who installs packages


def make_executor(settings: Settings, folder: str, note: Note) -> CodeExecutor:
    """Make the executor; what it warns of becomes a note."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        executor = _make(settings, folder, note)
    for warning in warned:
        note(str(warning.message))
    return executor


def _make(settings: Settings, folder: str, note: Note) -> CodeExecutor:
    # Each only when it is used: none needs what the others import.
    if settings.executor == "session":
        return make_session(settings, folder)
    if settings.executor == "local":
        from ..executors.command_line.local import LocalCommandLineCodeExecutor

        limits = _limits(settings, LOCAL_LIMITS)
        return LocalCommandLineCodeExecutor(
            settings.timeout, folder, packages=settings.packages, limits=limits
        )
    if settings.executor in ("docker", "docker-session"):
        return _make_docker(settings, folder, note)
    from ..executors.command_line.sandbox import SandboxCommandLineCodeExecutor

    limits, policy = _limits(settings, SANDBOX_LIMITS), _policy(settings)
    return SandboxCommandLineCodeExecutor(
        settings.timeout, folder, packages=settings.packages, limits=limits, policy=policy
    )


def _make_docker(settings: Settings, folder: str, note: Note) -> CodeExecutor:
    from ..executors.command_line.docker import IMAGE, DockerCommandLineCodeExecutor
    from ..executors.session.docker import DockerSessionCodeExecutor

    kind = (
        DockerSessionCodeExecutor
        if settings.executor == "docker-session"
        else DockerCommandLineCodeExecutor
    )
    return kind(
        settings.image or IMAGE,
        timeout=settings.timeout,
        work_dir=folder,
        packages=settings.packages,
        limits=_limits(settings, SANDBOX_LIMITS),
        delete_tmp_files=True,
        network="bridge" if settings.network else "none",
        on_pull=_Pulls(note),
    )


class _Pulls:
    """Note the progress of a fetched image, now and then."""

    def __init__(self, note: Note) -> None:
        self._note, self._next = note, 0.0
        self._layers: int = -1

    def __call__(self, progress: PullProgress) -> None:
        now = time.monotonic()
        if progress.layers and (now >= self._next or progress.layers_done not in (self._layers, 0)):
            self._next, self._layers = now + _BETWEEN, progress.layers_done
            self._note(f"fetching {progress}")


def make_session(
    settings: Settings, folder: str, ask: Callable[[str], Awaitable[str]] | None = None
) -> SandboxSessionCodeExecutor:
    """Make a live session. `ask` answers what its code asks for with `input()`."""
    from ..executors.session.sandbox import SandboxSessionCodeExecutor

    return SandboxSessionCodeExecutor(
        settings.timeout,
        folder,
        packages=settings.packages,
        limits=_limits(settings, SANDBOX_LIMITS),
        policy=_policy(settings),
        preload=settings.preload,
        input_callback=ask,
    )


def _limits(settings: Settings, default: Limits) -> Limits:
    return (
        default
        if settings.memory_bytes is None
        else dataclasses.replace(default, memory_bytes=settings.memory_bytes)
    )


def _policy(settings: Settings) -> Policy:
    return Policy(network="host" if settings.network else "none")


@contextlib.contextmanager
def made_folder(folder: str, *, ours: bool) -> Generator[None, None, None]:
    """Make the work folder when it is missing. One that is `ours` goes again when nothing was left in it."""
    ours = ours and not os.path.lexists(folder)
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        message = (
            f"The work folder {folder} cannot be made: {reason}. Name another with --work-dir."
        )
        raise WorkspaceError(message) from error
    try:
        yield
    finally:
        if ours:
            with contextlib.suppress(OSError):  # not empty, or gone
                os.rmdir(folder)


@contextlib.contextmanager
def progress(note: Note) -> Generator[None, None, None]:
    """Show what is said while packages are installed."""
    logger = logging.getLogger(_INSTALLER)
    handler = _Notes(note)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Notes(logging.Handler):
    def __init__(self, note: Note) -> None:
        super().__init__()
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        self._note(record.getMessage())
