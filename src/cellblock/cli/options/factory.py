"""Create the executor that the options ask for, and its work folder."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
import warnings
from collections.abc import Awaitable, Callable, Generator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, TypeAlias

from ...environments.virtualenv import context_of, session_packages
from ...errors import WorkspaceError
from ...executors.base import CodeExecutor
from ...limits import LOCAL_LIMITS, SANDBOX_LIMITS
from ..advice import Advisor
from ..terminal.stdio import PrintNote
from .settings import WORK_DIR, Settings

if TYPE_CHECKING:
    from ...events import PullProgress
    from ...executors.session.sandbox import SandboxSessionCodeExecutor
    from ...executors.session.settings import InputPrompt
    from ...kernel.session import KernelSession

InputCallback: TypeAlias = "Callable[[InputPrompt], Awaitable[str]]"
_PULL_NOTE_INTERVAL = 1.0  # seconds
_INSTALL_LOGGER = "cellblock.environments.uv"
_INSTALL_FAILURE = re.compile(r"uv: +(?:error\b|×|x )")


def make_executor(settings: Settings, folder: str | None, print_note: PrintNote) -> CodeExecutor:
    """Create the executor, and print its warnings as notes.

    Without `folder`, it has a temporary one.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        executor = _create(settings, folder, print_note)
    for warning in caught:
        print_note(str(warning.message))
    return executor


def _create(settings: Settings, folder: str | None, print_note: PrintNote) -> CodeExecutor:
    # Each executor is imported only when it is used.
    if settings.executor == "session":
        return create_session(settings, folder)
    if settings.executor == "local":
        from ...executors.command_line.local import LocalCommandLineCodeExecutor

        return LocalCommandLineCodeExecutor(
            settings.timeout,
            folder,
            virtual_env_context=_environment(settings),
            packages=settings.packages,
            limits=settings.limits,
        )
    if settings.executor in ("docker", "docker-session"):
        return _create_docker(settings, folder, print_note)
    from ...executors.command_line.sandbox import SandboxCommandLineCodeExecutor

    return SandboxCommandLineCodeExecutor(
        settings.timeout,
        folder,
        virtual_env_context=_environment(settings),
        packages=settings.packages,
        limits=settings.limits,
        policy=settings.policy,
    )


def _environment(settings: Settings) -> SimpleNamespace | None:
    return None if settings.env is None else context_of(settings.env)


def _create_docker(settings: Settings, folder: str | None, print_note: PrintNote) -> CodeExecutor:
    from ...executors.command_line.docker import IMAGE, DockerCommandLineCodeExecutor
    from ...executors.session.docker import DockerSessionCodeExecutor

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
        limits=settings.limits,
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


def make_kernel_session(
    settings: Settings,
    folder: str | None,
    input_callback: InputCallback | None,
    refusal: str = "",
) -> KernelSession:
    """Create the session of a Jupyter kernel. Without `folder`, it has a temporary one."""
    from ...kernel.session import KernelSession

    return KernelSession(create_session(settings, folder, input_callback), refusal)


def create_session(
    settings: Settings, folder: str | None, input_callback: InputCallback | None = None
) -> SandboxSessionCodeExecutor:
    """Create a session in the sandbox. `input_callback` answers `input()` in it."""
    from ...executors.session.sandbox import SandboxSessionCodeExecutor

    return SandboxSessionCodeExecutor(
        settings.timeout,
        folder,
        virtual_env_context=_environment(settings),
        packages=session_packages(settings.env, settings.packages),
        limits=settings.limits,
        policy=settings.policy,
        preload=settings.preload,
        input_callback=input_callback,
    )


def make_advisor(settings: Settings) -> Advisor:
    """Return an advisor that knows what `settings` allow."""
    is_local = settings.executor == "local"
    limits = settings.limits.with_defaults(LOCAL_LIMITS if is_local else SANDBOX_LIMITS)
    return Advisor(
        replace(limits, wall_seconds=settings.timeout),
        has_network=is_local or settings.network,
        folder=WORK_DIR if settings.work_dir is None else settings.work_dir,
    )


@contextlib.contextmanager
def work_folder(folder: str, *, is_default: bool) -> Generator[None, None, None]:
    """Create the work folder if it is missing.

    A default folder that was created here is removed on exit if it is empty.
    """
    folder = os.path.expanduser(folder)
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
    """Print log records until uv fails: the error quotes the rest."""

    def __init__(self, print_note: PrintNote) -> None:
        super().__init__()
        self._print_note, self._has_failed = print_note, False

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self._has_failed = self._has_failed or bool(_INSTALL_FAILURE.match(text))
        if not self._has_failed:
            self._print_note(text)
