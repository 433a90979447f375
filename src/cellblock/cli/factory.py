"""Create the executor that the options ask for, and its work folder."""

from __future__ import annotations

import contextlib
import logging
import os
import time
import warnings
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import WorkspaceError
from ..executors.base import CodeExecutor
from ..limits import Limits
from ..policy import Policy
from .settings import Settings
from .stdio import PrintNote

if TYPE_CHECKING:
    from ..events import PullProgress
    from ..executors.session.sandbox import SandboxSessionCodeExecutor

WORK_DIR = "coding"
_PULL_NOTE_INTERVAL = 1.0  # seconds
_INSTALL_LOGGER = "cellblock.environments.uv"


def make_executor(settings: Settings, folder: str, print_note: PrintNote) -> CodeExecutor:
    """Create the executor, and print its warnings as notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        executor = _create(settings, folder, print_note)
    for warning in caught:
        print_note(str(warning.message))
    return executor


def _create(settings: Settings, folder: str, print_note: PrintNote) -> CodeExecutor:
    # Each executor is imported only when it is used.
    if settings.executor == "session":
        return make_session(settings, folder)
    if settings.executor == "local":
        from ..executors.command_line.local import LocalCommandLineCodeExecutor

        limits = _limits(settings)
        return LocalCommandLineCodeExecutor(
            settings.timeout, folder, packages=settings.packages, limits=limits
        )
    if settings.executor in ("docker", "docker-session"):
        return _create_docker(settings, folder, print_note)
    from ..executors.command_line.sandbox import SandboxCommandLineCodeExecutor

    limits, policy = _limits(settings), _policy(settings)
    return SandboxCommandLineCodeExecutor(
        settings.timeout, folder, packages=settings.packages, limits=limits, policy=policy
    )


def _create_docker(settings: Settings, folder: str, print_note: PrintNote) -> CodeExecutor:
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
        limits=_limits(settings),
        delete_tmp_files=True,
        network="bridge" if settings.network else "none",
        on_pull=_PullProgressNotes(print_note),
    )


class _PullProgressNotes:
    """Print a note on the progress of an image pull, at most one per interval or finished layer."""

    def __init__(self, print_note: PrintNote) -> None:
        self._print_note, self._next_note_at = print_note, 0.0
        self._layers_done = -1

    def __call__(self, progress: PullProgress) -> None:
        now = time.monotonic()
        is_new_layer = progress.layers_done not in (self._layers_done, 0)
        if progress.layers_total and (now >= self._next_note_at or is_new_layer):
            self._next_note_at, self._layers_done = now + _PULL_NOTE_INTERVAL, progress.layers_done
            self._print_note(f"pulling {progress}")


def make_session(
    settings: Settings, folder: str, input_callback: Callable[[str], Awaitable[str]] | None = None
) -> SandboxSessionCodeExecutor:
    """Create a live session. `input_callback` answers calls of `input()` in the session."""
    from ..executors.session.sandbox import SandboxSessionCodeExecutor

    return SandboxSessionCodeExecutor(
        settings.timeout,
        folder,
        packages=settings.packages,
        limits=_limits(settings),
        policy=_policy(settings),
        preload=settings.preload,
        input_callback=input_callback,
    )


def _limits(settings: Settings) -> Limits:
    memory_bytes = settings.memory_bytes
    return Limits() if memory_bytes is None else Limits(memory_bytes=memory_bytes)


def _policy(settings: Settings) -> Policy:
    return Policy(network="host" if settings.network else "none")


@contextlib.contextmanager
def work_folder(folder: str, *, is_default: bool) -> Generator[None, None, None]:
    """Create the work folder if it is missing.

    A default folder that was created here is removed on exit if it is empty.
    """
    is_removable = is_default and not os.path.lexists(folder)
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        message = (
            f"The work folder {folder} cannot be created: {reason}. Use another with --work-dir."
        )
        raise WorkspaceError(message) from error
    try:
        yield
    finally:
        if is_removable:
            with contextlib.suppress(OSError):  # not empty, or already removed
                os.rmdir(folder)


@contextlib.contextmanager
def install_progress(print_note: PrintNote) -> Generator[None, None, None]:
    """Print the log of package installation as notes while the context is open."""
    logger = logging.getLogger(_INSTALL_LOGGER)
    handler = _NoteHandler(print_note)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _NoteHandler(logging.Handler):
    def __init__(self, print_note: PrintNote) -> None:
        super().__init__()
        self._print_note = print_note

    def emit(self, record: logging.LogRecord) -> None:
        self._print_note(record.getMessage())
