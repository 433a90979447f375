"""The errors that a runtime server reports."""

from __future__ import annotations

from ..errors import (
    BackendError,
    BackendLost,
    CellblockError,
    ExecutorStopped,
    PackageError,
    ServerFull,
    WorkspaceError,
)
from ..runtime.messages import Failure

STOPPED_TEXT = "The executor, or the server of its session, was stopped."


def preload_error(failure: Failure) -> PackageError:
    """Return the error for a module of `preload` that cannot be imported."""
    return PackageError(
        f"preload names {failure.module!r}, which the Python that runs the blocks cannot "
        f"import. {failure.error}\n"
        "Add the missing package to packages, or remove the module from preload."
    )


def end_reason(failure: Failure) -> str:
    """Return why a server has ended: because of a failure, or by request."""
    if failure.stopped and failure.error:
        return failure.error
    return f"The runtime server failed: {failure.error}."


def failure_error(failure: Failure, loss_advice: str) -> CellblockError:
    """Return the error that the server reports for one run."""
    if failure.stopped:
        return ExecutorStopped(STOPPED_TEXT)
    if failure.full:
        return ServerFull(f"The request was refused: {failure.error}.")
    if failure.lost:
        return BackendLost(f"The session was lost: {failure.error}. {loss_advice}".strip())
    if failure.file:
        return WorkspaceError(f"{failure.file} cannot be written: {failure.error}.")
    return BackendError(f"The code could not be run: {failure.error}.")
