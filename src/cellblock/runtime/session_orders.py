"""What is asked of a live session, besides a block: by the caller, and by the server."""

from __future__ import annotations

from typing import Final, NamedTuple, get_args

from .messages import MountSpec, RunCode, RunProgram, RunTerms

# from the caller; the server carries them out


class OpenSession(NamedTuple):
    """Open a session with this number, in its mounts. The server deletes `delete` at its end."""

    session: int
    mounts: tuple[MountSpec, ...] = ()
    delete: tuple[str, ...] = ()


class CloseSession(NamedTuple):
    """Close a session, and end its cell."""

    session: int


class NewBranch(NamedTuple):
    """A branch in a request to fork: its session number, its mounts, and what to delete at its end.

    `folder` is its work folder in a container.
    """

    session: int
    mounts: tuple[MountSpec, ...] = ()
    delete: tuple[str, ...] = ()
    folder: str = ""


class ForkSession(NamedTuple):
    """Open branches of a session, or of its checkpoint `key`."""

    session: int
    branches: tuple[NewBranch, ...]
    key: str | None
    rollback_checkpoints: bool


class KillProcess(NamedTuple):
    """Kill the session's process, before `ResumeCheckpoint` replaces it by checkpoint `key`.

    Between these orders, nothing writes to the work folder.
    """

    session: int
    terms: RunTerms
    key: str


class ResumeCheckpoint(NamedTuple):
    """Let a checkpoint continue as the session, whose process was killed."""

    session: int
    key: str
    rollback_checkpoints: bool


class ReclaimFiles(NamedTuple):
    """Let the user of the box own what other users have left in `folders` of the session."""

    session: int
    folders: tuple[str, ...]


class MeasureCpu(NamedTuple):
    """Say how much CPU time all processes of the session have used, if a control group counts."""

    session: int


class DropCheckpoint(NamedTuple):
    """End the process of a checkpoint, if there is one."""

    session: int
    key: str


# from the caller; the session's process carries them out


class GetVariable(NamedTuple):
    """Send the value of a variable."""

    session: int
    terms: RunTerms
    name: str


class SetVariable(NamedTuple):
    """Set a variable to the value of `size` bytes that follows, in the format `kind`."""

    session: int
    terms: RunTerms
    name: str
    kind: str
    size: int
    rollback_checkpoints: bool


class ListVariables(NamedTuple):
    """Describe all variables."""

    session: int
    terms: RunTerms


class CompleteCode(NamedTuple):
    """Return the completions of `code` at index `cursor`."""

    session: int
    terms: RunTerms
    code: str
    cursor: int


class FlushFiles(NamedTuple):
    """Write out what files buffer, before the work folder is copied."""

    session: int
    terms: RunTerms


class MakeCheckpoint(NamedTuple):
    """Fork a named checkpoint, or say what of the session cannot be copied."""

    session: int
    terms: RunTerms
    key: str
    rollback_checkpoints: bool


# from the server to the session's process, or to a checkpoint


class EnterFolder(NamedTuple):
    """Change to the work folder, which is mounted now."""

    terms: RunTerms = RunTerms()


class MakeRollbackCheckpoint(NamedTuple):
    """Fork a rollback checkpoint."""


class ForkBranches(NamedTuple):
    """Also to a checkpoint: fork the helper that forks branches, with the socket for it."""

    terms: RunTerms = RunTerms()


class ContinueSession(NamedTuple):
    """To a checkpoint: continue as the session, with these descriptors."""


class SaveVariables(NamedTuple):
    """To a checkpoint: send the variables to this descriptor."""


ProcessOrder = (
    EnterFolder
    | RunCode
    | GetVariable
    | SetVariable
    | ListVariables
    | CompleteCode
    | FlushFiles
    | MakeCheckpoint
    | MakeRollbackCheckpoint
    | ForkBranches
)
# What a session on the server works on: with its process, or in place of it.
SubmittedOrder = (
    RunCode
    | GetVariable
    | SetVariable
    | ListVariables
    | CompleteCode
    | EnterFolder
    | FlushFiles
    | MakeCheckpoint
    | ForkBranches
    | KillProcess
)
CheckpointOrder = ContinueSession | SaveVariables | ForkBranches
SessionOrder = (
    RunCode
    | RunProgram
    | OpenSession
    | CloseSession
    | ForkSession
    | KillProcess
    | ResumeCheckpoint
    | ReclaimFiles
    | MeasureCpu
    | DropCheckpoint
    | GetVariable
    | SetVariable
    | ListVariables
    | CompleteCode
    | FlushFiles
    | MakeCheckpoint
)
PROCESS_ORDERS: Final = get_args(ProcessOrder)
CHECKPOINT_ORDERS: Final = get_args(CheckpointOrder)
SESSION_ORDERS: Final = get_args(SessionOrder)
