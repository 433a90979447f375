"""What the runs of a conversation changed in the work folder: to show it, and to take it back."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import stat
import tempfile
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ...errors import CheckpointError
from ...executors.workspace.fingerprint import FileFingerprint, fingerprint
from ...executors.workspace.folder_copy import Metadata
from ...executors.workspace.snapshot import (
    Entry,
    FrozenFile,
    FrozenFolder,
    Snapshot,
    flat_entries,
    read_frozen,
    restore_entry,
    take_snapshot,
)
from ...runtime.linux.safe_folder import SafeFolder
from ..terminal.render import printable_line

_MAX_COPIED_BYTES = 1 << 29  # of the work folder, for each run
_MAX_DIFF_BYTES = 1 << 20  # of a file
# The lines of a file that are compared, and those of all files: the work is quadratic.
_MAX_COMPARED_LINES, _MAX_ALL_COMPARED_LINES = 4000, 40_000
_CONTEXT_LINES = 3
_NOT_KEPT = ""  # the name of no blob
_BLOCK_FILES = ("tmp_code_", ".tmp_code_")


@dataclass(frozen=True)
class Change:
    """What was at a path before and after a run. None means nothing."""

    before: Entry | None
    after: Entry | None

    @property
    def has_file(self) -> bool:
        """Whether a file or a link is concerned."""
        return any(isinstance(entry, FrozenFile | str) for entry in (self.before, self.after))

    @property
    def is_edit(self) -> bool:
        """Whether a file was there before and afterwards."""
        return isinstance(self.before, FrozenFile) and isinstance(self.after, FrozenFile)


@dataclass(frozen=True)
class RunChanges:
    """What a run changed, by path relative to the work folder.

    number          that of its entry in the transcript
    before, after   hold the data of the files
    is_complete     False if the work folder afterwards cannot be copied: what is new is not known
    """

    number: int
    before: Snapshot
    after: Snapshot
    changes: dict[str, Change]
    is_complete: bool = True


@dataclass(frozen=True)
class Undone:
    """The paths that were restored, and those that were left because others changed them."""

    restored: list[str]
    kept: list[str]


class FolderHistory:
    """Record what runs change in `folder`. Its methods block.

    runs     what is recorded, oldest first; the owner of the transcript may replace it
    reason   why the last run was not recorded, or not completely; "" if it was
    """

    def __init__(self, folder: str, max_copied_bytes: int = _MAX_COPIED_BYTES) -> None:
        self._max_copied_bytes = max_copied_bytes
        self._folder = Path(os.path.expanduser(folder))
        self.runs = list[RunChanges]()
        self.reason = ""
        self._latest: Snapshot | None = None  # shares its files with the next one
        # The fingerprint that a restored file had when it was recorded, by what it has now.
        self._originals = dict[FileFingerprint, FileFingerprint]()
        self._parent = ""

    @contextlib.contextmanager
    def open(self) -> Generator[None]:
        """Keep copies of files in a temporary folder while the context is open."""
        with tempfile.TemporaryDirectory(
            prefix="cellblock-chat-", ignore_cleanup_errors=True
        ) as self._parent:
            yield

    def begin(self) -> Snapshot | None:
        """Return the work folder as it is, for `end`; None if it cannot be copied."""
        self.reason = ""
        return self._take()

    def end(
        self, before: Snapshot | None, number: int, *, exclude: Path | None
    ) -> RunChanges | None:
        """Record and return what entry `number` changed since `begin`; None if it is not known.

        `exclude` is a file that changed for other reasons.
        """
        old = {} if before is None else flat_entries(before.entries)
        if before is None:
            return None
        after = self._take()
        if after is not None:
            new = flat_entries(after.entries)
        elif (new := self._states(old)) is None:
            return None
        top = self._folder.resolve()
        changes = {
            path: Change(old.get(path), new.get(path))
            for path in sorted(old.keys() | new.keys())
            if not self._are_same(old.get(path), new.get(path)) and top / path != exclude
        }
        run = RunChanges(number, before, after or before, changes, is_complete=after is not None)
        self.runs.append(run)
        return run

    def _take(self) -> Snapshot | None:
        previous, parent = self._latest, Path(self._parent)
        try:
            self._latest = take_snapshot(self._folder, previous, parent, self._max_copied_bytes)
        except (CheckpointError, OSError) as error:
            self.reason = str(error).partition(". ")[0]
            return None
        if previous is not None:
            previous.entries = {}  # the data of its files stay
        return self._latest

    def _states(self, old: Mapping[str, Entry]) -> dict[str, Entry] | None:
        """Return what is now at the paths of `old`, without data; None if that is not known."""
        try:
            with SafeFolder.at(self._folder) as top:
                states = {path: _state(top, path, entry) for path, entry in old.items()}
        except OSError:
            return None
        return {path: state for path, state in states.items() if state is not None}

    def _are_same(self, one: Entry | None, other: Entry | None) -> bool:
        """Return True if nothing has changed. The entries of folders are not compared."""
        if isinstance(one, FrozenFile) and isinstance(other, FrozenFile):
            return self._original(one.original) == self._original(other.original)
        if isinstance(one, FrozenFolder):
            return isinstance(other, FrozenFolder)
        return one == other

    def _original(self, state: FileFingerprint) -> FileFingerprint:
        return self._originals.get(state, state)

    def diff(self, number: int, only: Collection[str] | None = None) -> Iterator[str]:
        """Yield the lines of a unified diff of what the runs from entry `number` on changed.

        `only` are the paths to show; None means all but the temporary files of blocks.
        """
        first, last = dict[str, _Version](), dict[str, _Version]()
        for run in self.runs:
            if run.number >= number:
                for path, change in run.changes.items():
                    first.setdefault(path, _Version(run.before, change.before))
                    last[path] = _Version(run.after, change.after)
        shown = (
            [path for path in first if not path.startswith(_BLOCK_FILES)] if only is None else only
        )
        left = _MAX_ALL_COMPARED_LINES
        for path in sorted(shown):
            lines, compared = _diff(path, first[path], last[path], min(left, _MAX_COMPARED_LINES))
            left -= compared
            yield from lines

    def undo(self, number: int) -> Undone:
        """Take back what the runs from entry `number` on changed, and forget these runs.

        Files that others have changed since stay as they are. Raise `OSError` or `CheckpointError`
        if a file cannot be restored; the runs stay recorded.
        """
        undone = [run for run in self.runs if run.number >= number]
        targets = dict[str, tuple[Snapshot, Change]]()
        kept = set[str]()
        for run in reversed(undone):
            for path, change in run.changes.items():
                if path not in targets:
                    targets[path] = (run.before, change)
                elif path not in kept and self._are_same(change.after, targets[path][1].before):
                    targets[path] = (run.before, Change(change.before, targets[path][1].after))
                else:
                    kept.add(path)
        with SafeFolder.at(self._folder) as top:
            kept |= {p for p in targets if not self._is_still(top, p, targets[p][1].after)}
            restored = [path for path in sorted(targets) if path not in kept]
            for path in reversed(restored):  # what is in a folder comes before it
                _remove(top, path, targets[path][1])
            for path in restored:
                snapshot, change = targets[path]
                if change.before is not None and not self._restore(top, path, snapshot, change):
                    kept.add(path)
        self.runs = [run for run in self.runs if run.number < number]
        files = [path for path in restored if path not in kept and targets[path][1].has_file]
        return Undone(files, sorted(kept))

    def _is_still(self, top: SafeFolder, path: str, expected: Entry | None) -> bool:
        """Return True if `path` is still what a run left there."""
        *above, name = path.split("/")
        try:
            with top.inner(*above) as folder:
                status = folder.stat(name)
                if stat.S_ISLNK(status.st_mode):
                    return expected == folder.read_link(name)
        except (FileNotFoundError, NotADirectoryError):
            return expected is None
        if isinstance(expected, FrozenFile):
            return self._original(fingerprint(status)) == self._original(expected.original)
        return isinstance(expected, FrozenFolder) and stat.S_ISDIR(status.st_mode)

    def _restore(self, top: SafeFolder, path: str, snapshot: Snapshot, change: Change) -> bool:
        """Create what was at `path` before. Return False if something else is there."""
        *above, name = path.split("/")
        entry = change.before
        assert entry is not None
        if isinstance(entry, FrozenFolder) and isinstance(change.after, FrozenFolder):
            return True
        try:
            with top.inner(*above, create=True) as folder:
                new = restore_entry(snapshot, entry, folder, name)
        except (FileExistsError, NotADirectoryError):
            return False
        if isinstance(new, FrozenFile) and isinstance(entry, FrozenFile):
            self._originals[new.original] = self._original(entry.original)
        return True


class _Version(NamedTuple):
    """What was at a path at some time, and what holds its data."""

    snapshot: Snapshot
    entry: Entry | None

    def lines(self) -> list[str] | None:
        """Return its lines; None if it is no text, too much or not kept. A link is its path."""
        if not isinstance(self.entry, FrozenFile):
            is_link = isinstance(self.entry, str)
            return [f"link to {printable_line(str(self.entry))}"] if is_link else []
        if self.entry.blob == _NOT_KEPT:
            return None
        data = read_frozen(self.snapshot, self.entry, _MAX_DIFF_BYTES + 1)
        if b"\0" in data or len(data) > _MAX_DIFF_BYTES:
            return None
        return data.decode(errors="replace").splitlines()


def _diff(
    path: str, before: _Version, after: _Version, max_compared: int
) -> tuple[Iterable[str], int]:
    """Return the lines of the diff of a file, and how many of its lines are compared."""
    old, new, name = before.lines(), after.lines(), printable_line(path)
    is_new = not isinstance(before.entry, FrozenFile | str)
    is_gone = not isinstance(after.entry, FrozenFile | str)
    if old is None or new is None:
        what = "new" if is_new else "deleted" if is_gone else "changed"
        return [f"{name}: {what}, and no text"], 0
    names = ("/dev/null" if is_new else name, "/dev/null" if is_gone else name)
    start, tail = _same_lines(old, new)
    old, new = old[start : len(old) - tail], new[start : len(new) - tail]
    compared = len(old) + len(new) if old and new else 0
    if compared > max_compared:
        return [f"{name}: changed, and too long to compare"], 0
    lines = difflib.unified_diff(old, new, *names, lineterm="", n=_CONTEXT_LINES)
    return (_moved(line, start) if line.startswith("@@ ") else line for line in lines), compared


def _moved(hunk: str, count: int) -> str:
    """Return the first line of a hunk that begins `count` lines further down."""
    return re.sub(r"(?<=[-+])\d+", lambda match: str(int(match[0]) + count), hunk)


def _same_lines(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Return how many equal lines to leave out at the start and at the end."""
    length = min(len(old), len(new))
    start = next((n for n in range(length) if old[n] != new[n]), length)
    end = next((n for n in range(length - start) if old[-1 - n] != new[-1 - n]), length - start)
    return max(0, start - _CONTEXT_LINES), max(0, end - _CONTEXT_LINES)


def _state(top: SafeFolder, path: str, before: Entry) -> Entry | None:
    """Return what is at `path`, without its data. It is `before` if that cannot be seen."""
    *above, name = path.split("/")
    try:
        with top.inner(*above) as folder:
            status = folder.stat(name)
            if stat.S_ISLNK(status.st_mode):
                return folder.read_link(name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return before
    if stat.S_ISDIR(status.st_mode):
        return FrozenFolder(Metadata.of(status), {})
    if not stat.S_ISREG(status.st_mode):
        return None
    return FrozenFile(Metadata.of(status), fingerprint(status), _NOT_KEPT, status.st_size, None)


def _remove(top: SafeFolder, path: str, change: Change) -> None:
    """Remove what a run left at `path`, except folders that are needed or not empty."""
    *above, name = path.split("/")
    if change.after is None:
        return
    with contextlib.suppress(FileNotFoundError), top.inner(*above) as folder:
        if not isinstance(change.after, FrozenFolder):
            folder.unlink(name)
        elif not isinstance(change.before, FrozenFolder):
            with contextlib.suppress(OSError):  # not empty
                folder.remove_empty(name)
