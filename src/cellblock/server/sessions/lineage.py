"""Lineage: from which checkpoint of a session each one has come, and which sessions have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ForkRecord:
    """A session that was forked. `checkpoint` is where it has come from; None for the start."""

    session_id: str
    checkpoint: str | None


class Lineage:
    """The order of the checkpoints of one session, also of those that are deleted by now.

    `current` is the checkpoint that was made or restored last; None at the start of the session.
    """

    def __init__(self) -> None:
        self.current: str | None = None
        self.forks = list[ForkRecord]()
        self._parents = dict[str, str | None]()

    def add(self, name: str) -> None:
        """Add a checkpoint that was made now. It may replace one of the same name."""
        if name in self._parents:
            above = self._parents.pop(name)
            self._parents = {
                each: above if parent == name else parent for each, parent in self._parents.items()
            }
            self.current = above if self.current == name else self.current
        self._parents[name] = self.current
        self.current = name

    def add_fork(self, session_id: str, checkpoint: str | None) -> None:
        """Add a session that was forked now, from the present state if there is no checkpoint."""
        self.forks.append(ForkRecord(session_id, checkpoint or self.current))

    def parent_of(self, name: str | None, known: set[str]) -> str | None:
        """Return the nearest of the `known` checkpoints above a checkpoint; None for the start."""
        return None if name is None else self.nearest(self._parents.get(name), known)

    def nearest(self, name: str | None, known: set[str]) -> str | None:
        """Return a checkpoint, or the nearest one above it that is `known`."""
        while name is not None and name not in known:
            name = self._parents.get(name)
        return name
