"""The transcript of a conversation, saved after each step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .entries import Entry
from .file import write_transcript
from .saved_options import SavedOptions


class Transcript:
    """Keep `entries`, and save them in the file `path` whenever one is added; None: nowhere.

    `options` are those with which the conversation runs.
    """

    def __init__(
        self,
        path: Path | None,
        entries: Sequence[Entry] = (),
        options: SavedOptions | None = None,
    ) -> None:
        self.path, self.options = path, options
        self.entries = list(entries)

    def add(self, entry: Entry) -> None:
        """Add `entry`. Raise `WorkspaceError` if it cannot be saved; it is kept all the same."""
        self.replace_all([*self.entries, entry])

    def replace_last(self, entry: Entry) -> None:
        """Replace the last entry by `entry`, which says more. Raises as `add` does."""
        self.entries.pop()
        self.add(entry)

    def replace_all(self, entries: Sequence[Entry]) -> None:
        """Replace what happened by `entries`. Raises as `add` does."""
        self.entries = list(entries)
        if self.path is not None:
            write_transcript(self.path, self.entries, self.options)
