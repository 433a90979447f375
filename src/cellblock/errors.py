"""The errors of this library. They report what the library could not do.

What a program did is not an error but data: see `results`.

CellblockError
├── BackendError (RuntimeError)         the backend cannot be built or used
│   ├── SandboxUnavailable              this machine lacks what the sandbox needs
│   ├── ContainerEngineUnavailable      no container engine accepts a connection
│   ├── ImageUnavailable                the image is missing and cannot be pulled
│   ├── ImageUnusable (ValueError)      an image is damaged, too large, or for another machine
│   ├── BackendLost (ConnectionError)   the runtime server ended while it was in use
│   │   └── BoxGone                     a box was closed, or its server or container was lost
│   ├── UserUnsupported (ValueError)    commands of a box cannot run as the given user
│   ├── ServerFull                      a limit leaves no room for more
│   ├── ServiceError (ConnectionError)  a remote service refused a request, or gave no answer
│   └── ExecutorStopped                 `stop` was called while a block ran
├── WorkspaceError (OSError)            the work folder is missing, full or not writable
│   └── WorkspaceFileNotFound (FileNotFoundError)   a file to send or to fetch does not exist
├── PackageError (ValueError)           a package was not installed, or a module not preloaded
├── FunctionError (ValueError)          a function cannot be given to blocks
├── SessionError (RuntimeError)         a live session could not do what was requested
│   ├── UnsupportedValue (TypeError)    a value cannot be exchanged with a session
│   └── CheckpointError                 a session cannot be copied, or the copy is gone
├── ModelError (RuntimeError)           a chat model could not be asked
│   ├── ModelOutputError (ValueError)   the model's answer is not what was requested
│   └── CassetteMismatch                a request differs from the recorded one
├── AgentError (RuntimeError)           an agent or a team could not continue
│   └── TerminatedException             a termination condition must be reset first
├── ComponentError (ValueError)         a saved configuration is damaged or not allowed
└── ExecutionError (RuntimeError)       raised by `result.check()` only; see `results`
    ├── ExecutionTimeout (TimeoutError)
    ├── ExecutionCancelled
    └── ExecutionFailed
"""

from __future__ import annotations


class CellblockError(Exception):
    """Base class of the errors that this library raises."""


class BackendError(CellblockError, RuntimeError):
    """The backend cannot be built or used."""


class SandboxUnavailable(BackendError):
    """This machine cannot provide the requested protection. The message lists the missing features.

    `advice` is the last part of the message: which parameters choose a weaker protection.
    """

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(f"{message}\n{advice}" if advice else message)
        self.advice = advice


class ContainerEngineUnavailable(BackendError):
    """No container engine accepts a connection from this user. The message says what to do."""


class ImageUnavailable(BackendError):
    """The image is missing and cannot be pulled. The message quotes the container engine."""


class ImageUnusable(BackendError, ValueError):
    """An image is damaged, too large, for another machine, or not one at all."""


class BackendLost(BackendError, ConnectionError):
    """The runtime server ended while it was in use. The message quotes its last output."""


class BoxGone(BackendLost):
    """A box was closed, or its server or container was lost. The message says which."""


class UserUnsupported(BackendError, ValueError):
    """Commands and files of a box cannot be used as the given user. The message names it."""


class ServerFull(BackendError):
    """A limit of the runtime server, or of this process, leaves no room. The message names it."""


class ServiceError(BackendError, ConnectionError):
    """A remote service refused a request, gave no answer, or one that cannot be read.

    status       the HTTP status; None if there was no answer
    code         the service's name for the error; None if it has none
    request_id   the service's name for the request, for its support; None if it has none
    """

    def __init__(
        self,
        *args: object,
        status: int | None = None,
        code: str | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(*args)
        self.status, self.code, self.request_id = status, code, request_id


class ExecutorStopped(BackendError):
    """The executor was stopped while a block ran. Nothing of the block is left running."""


class WorkspaceError(CellblockError, OSError):
    """The work folder is missing, full or not writable."""


class WorkspaceFileNotFound(WorkspaceError, FileNotFoundError):
    """A file to send to a session, or to fetch from one, does not exist."""


class PackageError(CellblockError, ValueError):
    """A package cannot be installed, or a module of `preload` cannot be imported.

    The message quotes the package installer or Python.
    """


class FunctionError(CellblockError, ValueError):
    """A function cannot be given to blocks. The message says why."""


class SessionError(CellblockError, RuntimeError):
    """A live session could not do what was requested. The message says why."""


class UnsupportedValue(SessionError, TypeError):
    """A value cannot be exchanged with a live session. The message says what to pass instead."""


class CheckpointError(SessionError):
    """A live session cannot be copied, or its checkpoint no longer exists.

    The message names what prevents the copy.
    """


class ModelError(CellblockError, RuntimeError):
    """A chat model could not be asked. The message quotes the service and its request ID.

    `status` is the HTTP status; None if there was no answer, or no service. `advice` is the last
    part of the message: what to do, in terms of the client's arguments.
    """

    def __init__(
        self,
        *args: object,
        status: int | None = None,
        request_id: str | None = None,
        advice: str = "",
    ) -> None:
        super().__init__(*args)
        self.status = status
        self.request_id = request_id
        self.advice = advice


class ModelOutputError(ModelError, ValueError):
    """The model's answer is not what was requested, such as JSON of a given schema."""


class CassetteMismatch(ModelError):
    """A request differs from the one that was recorded. The message shows the difference."""


class AgentError(CellblockError, RuntimeError):
    """An agent or a team could not continue. The message says which one and why."""


class TerminatedException(AgentError):
    """A termination condition was asked again after it was reached. Reset it first."""


class ComponentError(CellblockError, ValueError):
    """A saved configuration is damaged, or names a class that is not on the allow-list."""
