"""Checkpoint: a frozen copy of a session."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ..workspace.snapshot import CopyStats, Snapshot


@dataclass(frozen=True)
class Checkpoint:
    """A frozen copy of a session's memory and work folder.

    name            its name in the session: as given, or a number
    key             what the runtime server calls it
    blocks          number of blocks that the session had run
    created_at      creation time, as from `time.time()`
    expires_at      when it is dropped automatically. `None` means when its session stops
    seconds         how long its creation took
    copied_bytes    bytes of the work folder that were copied
    shared_bytes    bytes of the work folder that were not copied, because the file is unchanged
                    since the previous checkpoint or the filesystem shares its data
    """

    name: str
    key: str = field(repr=False)
    blocks: int
    created_at: float
    expires_at: float | None
    seconds: float
    copied_bytes: int
    shared_bytes: int
    snapshot: Snapshot = field(repr=False, compare=False)

    @classmethod
    def create(
        cls,
        name: str,
        key: str,
        blocks: int,
        began: float,
        lifetime_seconds: float | None,
        snapshot: Snapshot,
    ) -> Checkpoint:
        """Create a checkpoint. `began` is the `time.monotonic()` at which its creation started."""
        cost: CopyStats = snapshot.stats
        now = time.time()
        return cls(
            name,
            key,
            blocks,
            now,
            None if lifetime_seconds is None else now + lifetime_seconds,
            time.monotonic() - began,
            cost.copied_bytes,
            cost.shared_bytes,
            snapshot,
        )
