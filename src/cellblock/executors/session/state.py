"""SessionState: what an executor knows of its live session."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import CheckpointError
from ..workspace.snapshot import Snapshot
from .checkpoint import Checkpoint

LOSS_ADVICE = "Call restart() to start a new session."  # after the loss of the server


@dataclass
class SessionState:
    """What an executor knows of its live session.

    number        its number on the runtime server
    block_count   how many blocks it has run
    checkpoints   its checkpoints by name, oldest first
    copied_from   the snapshot that its work folder was copied from, in a branch of a checkpoint
    """

    number: int = 0
    block_count: int = 0
    checkpoints: dict[str, Checkpoint] = field(default_factory=dict[str, Checkpoint])
    copied_from: Snapshot | None = None

    def last_snapshot(self) -> Snapshot | None:
        """Return the snapshot with which the next one can share what has not changed."""
        newest = next(reversed(self.checkpoints.values()), None)
        return self.copied_from if newest is None else newest.snapshot

    def snapshot_folders(self) -> list[Path]:
        """Return the folders with the checkpoints' copies of the work folder."""
        return [each.snapshot.path for each in self.checkpoints.values()]

    def discard_checkpoints(self) -> None:
        """Delete all checkpoints. Their processes have ended or are about to end."""
        for checkpoint in self.checkpoints.values():
            checkpoint.snapshot.remove()
        self.checkpoints.clear()
        self.block_count = 0

    def new_checkpoint_name(self, given: str | None, replace: bool) -> str:
        """Return the name of a new checkpoint. Raise `ValueError` if `given` is invalid or used."""
        if given is None:
            numbers = map(str, itertools.count(1))
            return next(number for number in numbers if number not in self.checkpoints)
        if not isinstance(given, str) or not given or not given.isprintable():  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            raise ValueError(f"The name of a checkpoint must be a printable string, not {given!r}.")
        if given in self.checkpoints and not replace:
            raise ValueError(
                f"There is a checkpoint {given!r}. Use another name, or `replace` to replace it."
            )
        return given

    def find_checkpoint(self, given: Checkpoint | str) -> Checkpoint:
        """Return the checkpoint with a name, or `given` itself."""
        if not isinstance(given, str):
            _check_checkpoint(given)
            return given
        if (found := self.checkpoints.get(given)) is None:
            names = ", ".join(map(repr, self.checkpoints)) or "none"
            raise CheckpointError(
                f"The session has no checkpoint {given!r}. Use the name of one of these: {names}."
            )
        return found

    def require_checkpoint(self, given: Checkpoint | str) -> Checkpoint:
        """Return the checkpoint. Raise `CheckpointError` if the session does not have it."""
        checkpoint = self.find_checkpoint(given)
        if self.checkpoints.get(checkpoint.name) is not checkpoint:
            raise CheckpointError(
                "The checkpoint was dropped, has expired or belongs to another session. "
                "Use one of session.checkpoints."
            )
        return checkpoint


def _check_checkpoint(checkpoint: object) -> None:
    if not isinstance(checkpoint, Checkpoint):
        raise ValueError(
            "Pass a Checkpoint that session.checkpoint() returned, or its name, such as "
            f"session.checkpoints[-1], not {checkpoint!r:.100}."
        )
