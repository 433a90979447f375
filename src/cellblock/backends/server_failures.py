"""The errors for what a runtime server reports as failed."""

from __future__ import annotations

from typing import Any

from ..errors import (
    BackendError,
    BackendLost,
    CellblockError,
    ExecutorStopped,
    PackageError,
    ServerFull,
    WorkspaceError,
)

STOPPED_TEXT = "The executor, or the server of its session, was stopped."


class PythonUnsuitable(BackendError):
    """The Python that runs the blocks lacks a package that sessions need."""


def start_error(failure: dict[str, Any], reason: str) -> CellblockError | None:
    """Return the error for a failed start; None if it is a plain `BackendError`."""
    if failure.get("missing"):
        return PythonUnsuitable(str(failure.get("error")))
    if failure.get("full"):
        return ServerFull(reason)
    return _preload_error(failure) if failure.get("module") else None


def _preload_error(failure: dict[str, Any]) -> PackageError:
    """Return the error for a module of `preload` that cannot be imported."""
    return PackageError(
        f"preload names {failure['module']!r}, which the Python that runs the blocks cannot "
        f"import. {failure.get('error')}\n"
        "Add the missing package to packages, or remove the module from preload."
    )


def run_error(failure: dict[str, Any], loss_advice: str) -> CellblockError:
    """Return the error that the server reports for one run."""
    if failure.get("stopped"):
        return ExecutorStopped(STOPPED_TEXT)
    if failure.get("full"):
        return ServerFull(f"The request was refused: {failure.get('error')}.")
    if failure.get("lost"):
        return BackendLost(f"The session was lost: {failure.get('error')}. {loss_advice}".strip())
    if failure.get("file"):
        return WorkspaceError(f"{failure['file']} cannot be written: {failure.get('error')}.")
    return BackendError(f"The code could not be run: {failure.get('error')}.")
