"""What is asked of the process of kept boxes, besides what is asked of a box and its session.

These orders arrive in frames of the kind `SESSION_REQUEST`. A packet with a `KeptReply` in
`VALUE_CHUNK`, then `SESSION_REPLY`, answer each of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple, get_args

from ... import errors
from ...errors import BackendError, BoxGone, CellblockError
from ...executors.session.checkpoint import Checkpoint
from ...executors.workspace.snapshot import Snapshot
from ...sandbox.images.root_file_system import RootFileSystem


class RootDescription(NamedTuple):
    """See `RootFileSystem`."""

    path: str
    environment: tuple[str, ...]
    work_dir: str

    @classmethod
    def of(cls, root: RootFileSystem) -> RootDescription:
        """Return the description of `root`."""
        return cls(root.path, root.environment, root.work_dir)

    def root(self) -> RootFileSystem:
        """Return what is described."""
        return RootFileSystem(*self)


class LaunchBox(NamedTuple):
    """What the process makes its first box of. It is given over its standard input.

    config        the JSON text of an executor's configuration
    socket_path   of the socket on which it listens
    root_source   the path of a root file system; `root` is one that was opened before
    users         see `Sandbox`
    """

    box: str
    config: str
    idle_seconds: float | None
    socket_path: str = ""
    root_source: str | None = None
    root: RootDescription | None = None
    users: bool = False


class AttachBox(NamedTuple):
    """Use a box over this connection from now on. The first one starts it."""

    box: str


class SaveCheckpoint(NamedTuple):
    """See `SessionExecutor.checkpoint`."""

    name: str | None
    lifetime_seconds: float | None
    replace: bool
    max_copied_bytes: int | None


class RestoreCheckpoint(NamedTuple):
    """See `SessionExecutor.restore`. `key` "": whichever has the name."""

    name: str
    key: str


class DeleteCheckpoint(NamedTuple):
    """See `SessionExecutor.drop`, and `RestoreCheckpoint`."""

    name: str
    key: str


class ForkBox(NamedTuple):
    """See `SessionExecutor.fork`, and `RestoreCheckpoint`. `name` None: of the present state."""

    copies: int
    name: str | None
    key: str
    max_copied_bytes: int | None


class ListCheckpoints(NamedTuple):
    """Describe all checkpoints."""


class CloseBox(NamedTuple):
    """Close the box, for all that are attached to it."""


KeptOrder = (
    AttachBox
    | SaveCheckpoint
    | RestoreCheckpoint
    | DeleteCheckpoint
    | ForkBox
    | ListCheckpoints
    | CloseBox
)
KEPT_ORDERS: Final = get_args(KeptOrder)


class CheckpointDescription(NamedTuple):
    """See `Checkpoint`. `path` is that of its snapshot."""

    name: str
    key: str
    blocks: int
    created_at: float
    expires_at: float | None
    seconds: float
    copied_bytes: int
    shared_bytes: int
    path: str

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> CheckpointDescription:
        """Return the description of `checkpoint`."""
        return cls(
            checkpoint.name,
            checkpoint.key,
            checkpoint.blocks,
            checkpoint.created_at,
            checkpoint.expires_at,
            checkpoint.seconds,
            checkpoint.copied_bytes,
            checkpoint.shared_bytes,
            str(checkpoint.snapshot.path),
        )

    def checkpoint(self) -> Checkpoint:
        """Return what is described."""
        return Checkpoint(*self[:-1], snapshot=Snapshot(Path(self.path)))


class BoxDescription(NamedTuple):
    """A box that runs.

    pid       of the process that has it
    config    as in `LaunchBox`
    scratch   the folder on this machine with its home
    """

    box: str
    pid: int
    config: str
    work_dir: str
    scratch: str
    root: RootDescription | None = None
    users: bool = False


class KeptReply(NamedTuple):
    """The reply to a `KeptOrder`. `error`: the class of what it has raised, and `text` says why.

    `boxes`: the one that was attached to, or those that were forked.
    """

    error: str = ""
    text: str = ""
    checkpoints: tuple[CheckpointDescription, ...] = ()
    boxes: tuple[BoxDescription, ...] = ()

    @classmethod
    def from_error(cls, error: Exception) -> KeptReply:
        """Return the reply that `error` was raised."""
        return cls(type(error).__name__, str(error))

    def check(self) -> KeptReply:
        """Return this reply. Raise the error in it."""
        if not self.error:
            return self
        if self.error == "ValueError":
            raise ValueError(self.text)
        kind: object = getattr(errors, self.error, None)
        if isinstance(kind, type) and issubclass(kind, CellblockError):
            raise kind(self.text)
        raise BackendError(f"The process of the box has failed: {self.error}: {self.text}")


def no_such_box(name: str) -> BoxGone:
    """Return the error for a box that has ended."""
    return BoxGone(
        f"The box {name} is gone: it was closed, it was idle for too long, or its process has "
        "ended. Create a new one."
    )
