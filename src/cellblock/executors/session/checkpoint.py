"""Checkpoints of a live session: what they are, and how many there may be for how long."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ..workspace.snapshot import Cost, Snapshot


@dataclass(frozen=True)
class Checkpoint:
    """A frozen copy of a session: memory and work folder.

    name            its name in the session
    blocks          how many blocks the session had run
    made_at         when, in seconds of `time.time()`
    expires_at      when it is dropped by itself; `None`: with its session
    seconds         what making it took
    copied_bytes    of the work folder: those that had to be copied
    shared_bytes    ... and those that did not, since nothing has changed them, or the filesystem shares them
    """

    name: str
    blocks: int
    made_at: float
    expires_at: float | None
    seconds: float
    copied_bytes: int
    shared_bytes: int
    snapshot: Snapshot = field(repr=False, compare=False)

    @classmethod
    def of(
        cls,
        name: str,
        blocks: int,
        began: float,
        lifetime_seconds: float | None,
        snapshot: Snapshot,
    ) -> Checkpoint:
        """Make it of what was done since `began`, a reading of `time.monotonic()`."""
        cost: Cost = snapshot.cost
        now = time.time()
        return cls(
            name,
            blocks,
            now,
            None if lifetime_seconds is None else now + lifetime_seconds,
            time.monotonic() - began,
            cost.copied_bytes,
            cost.shared_bytes,
            snapshot,
        )
