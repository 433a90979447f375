"""Everything that can go wrong on our side. What a program did is never here: that is data, in the result.

CellblockError
├── BackendError (RuntimeError)            the place that runs the code cannot be built or used
│   ├── SandboxUnavailable               this machine lacks what the sandbox needs; carries the report
│   ├── ContainerEngineUnavailable                no container engine answers, or not to us
│   ├── ImageUnavailable                 the image is not there and cannot be fetched
│   └── BackendLost (ConnectionError)      the cell server ended while it was needed
├── WorkspaceError (OSError)             the work folder vanished, is full or is not writable
├── PackageError (ValueError)            a requirement cannot be met, or a module of `preload` not imported
├── FunctionError (ValueError)           a function cannot be given to blocks
├── SessionError (RuntimeError)          a live session could not do what it was asked for
│   └── CheckpointError                  it cannot be copied, or the copy is not there any more
├── ComponentError (ValueError)          a saved configuration is not one of ours, or is damaged
└── ExecutionError (RuntimeError)        raised by ``result.check()`` alone; carries the result
    ├── ExecutionTimeout (TimeoutError)
    ├── ExecutionCancelled
    └── ExecutionFailed
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .results import CodeResult


class CellblockError(Exception):
    """Base of every error that this library raises on its own account."""


class BackendError(CellblockError, RuntimeError):
    """The place that runs the code cannot be built or used."""


class SandboxUnavailable(BackendError):
    """This machine cannot give the protection that was asked for; the message is the report."""


class ContainerEngineUnavailable(BackendError):
    """No container engine answers, or not to this user; the message says which, and what to do."""


class ImageUnavailable(BackendError):
    """The image is not there and cannot be fetched; the message holds the engine's own words."""


class BackendLost(BackendError, ConnectionError):
    """The cell server ended while it was needed; what it said last is in the message."""


class WorkspaceError(CellblockError, OSError):
    """The work folder vanished, is full or is not writable."""


class PackageError(CellblockError, ValueError):
    """A requirement cannot be met, or a module of `preload` not imported; the resolver's or Python's own words are in it."""


class FunctionError(CellblockError, ValueError):
    """A function cannot be made available to blocks; the message says why."""


class SessionError(CellblockError, RuntimeError):
    """A live session could not do what it was asked for; the message says why."""


class CheckpointError(SessionError):
    """A live session cannot be copied, and the message names what is in the way; or the copy is not there any more."""


class ComponentError(CellblockError, ValueError):
    """A saved configuration is damaged or names a class that may not be loaded."""


class ExecutionError(CellblockError, RuntimeError):
    """A block did not end well. ``result`` is the whole result."""

    def __init__(self, message: str, result: CodeResult) -> None:
        super().__init__(message)
        self.result = result


class ExecutionTimeout(ExecutionError, TimeoutError):
    """A time limit ended the block."""


class ExecutionCancelled(ExecutionError):
    """The cancellation token ended the block."""


class ExecutionFailed(ExecutionError):
    """The program failed, was killed, or ran out of memory."""
