"""Snapshots of a folder, taken while code may be writing to it.

To create a file costs several times as much as to read a small one. So a snapshot is not a folder
like the original: its small files are in one file, the pack, and all names and metadata in memory.
A file that has not changed since the previous snapshot is shared with it: both have a hard link to
its pack, or to its copy.
"""

from __future__ import annotations

import itertools
import os
import stat
import tempfile
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ...runtime.linux.safe_folder import ALL_RIGHTS, SafeFolder, remove_tree, write_all
from .fingerprint import FileFingerprint, fingerprint
from .folder_copy import (
    MAX_DEPTH,
    CopyStats,
    Metadata,
    copy_contents,
    copy_entries,
    name_denied,
    new_file,
    open_file,
    open_folder,
    open_inner,
    read_small,
)

_PACK_BUFFER_BYTES = 1 << 20
_blob_names = map(str, itertools.count())


class FrozenFile(NamedTuple):
    """A file whose data are `size` bytes at `offset` of the pack `blob`, or without it all of it.

    `original` is the fingerprint of the file in the original folder.
    """

    metadata: Metadata
    original: FileFingerprint
    blob: str
    size: int
    offset: int | None


class FrozenFolder(NamedTuple):
    """A folder and what is in it, by name."""

    metadata: Metadata
    entries: dict[str, Entry]


Entry = FrozenFile | FrozenFolder | str  # the text of a symbolic link


@dataclass
class Snapshot:
    """A frozen copy of a folder.

    `path` is the folder of its blobs, and `used_bytes` how much of each is the data of its files.
    """

    path: Path
    stats: CopyStats = field(default_factory=CopyStats)
    entries: dict[str, Entry] = field(default_factory=dict[str, Entry])
    used_bytes: Counter[str] = field(default_factory=Counter[str])

    def remove(self) -> None:
        """Delete the snapshot's folder."""
        remove_tree(str(self.path))


def take_snapshot(
    folder: Path, previous: Snapshot | None, parent: Path, max_copied_bytes: int | None = None
) -> Snapshot:
    """Take a snapshot of `folder` in a new subfolder of `parent`.

    Files that have not changed since the snapshot `previous` are shared with it. Raise
    `CheckpointError` if more than `max_copied_bytes` would be copied, or another user's file cannot
    be read.
    """
    snapshot = Snapshot(
        Path(tempfile.mkdtemp(prefix="snapshot-", dir=parent)),
        CopyStats(max_copied_bytes=max_copied_bytes),
    )
    try:
        with open_folder(str(folder)) as source, SafeFolder.at(snapshot.path) as blobs:
            snapshot.entries = _freeze(source, blobs, snapshot, previous)
    except BaseException:
        snapshot.remove()
        raise
    return snapshot


def _freeze(
    source: SafeFolder, blobs: SafeFolder, snapshot: Snapshot, previous: Snapshot | None
) -> dict[str, Entry]:
    name = next(_blob_names)
    with open(blobs.create_file(name, 0o600), "wb", buffering=_PACK_BUFFER_BYTES) as pack:
        freezer = _Freezer(snapshot, blobs, name, pack, previous)
        before = previous.entries if previous is not None else {}
        return freezer.freeze_entries(source, before, MAX_DEPTH)


class _Freezer:
    """What takes a snapshot. It creates files in the open folder `blobs`."""

    def __init__(
        self,
        snapshot: Snapshot,
        blobs: SafeFolder,
        pack_name: str,
        pack: BinaryIO,
        previous: Snapshot | None,
    ) -> None:
        self._snapshot, self._blobs, self._previous = snapshot, blobs, previous
        self._pack_name, self._pack = pack_name, pack
        self._is_shared = dict[str, bool]()  # by the name of a blob of `previous`

    def freeze_entries(
        self, folder: SafeFolder, before: Mapping[str, Entry], depth: int
    ) -> dict[str, Entry]:
        """Return what is in `folder`. `before` is what was in it in the previous snapshot."""
        entries = dict[str, Entry]()
        for name, status in folder.statuses():
            old = before.get(name)
            if stat.S_ISLNK(status.st_mode):
                entries[name] = folder.read_link(name)
            elif stat.S_ISDIR(status.st_mode):
                with open_inner(name, folder, depth) as inner:
                    inner_before = old.entries if isinstance(old, FrozenFolder) else {}
                    inner_entries = self.freeze_entries(inner, inner_before, depth - 1)
                entries[name] = FrozenFolder(Metadata.of(status), inner_entries)
            elif stat.S_ISREG(status.st_mode):
                file = self._share_file(old, status) or self._freeze_file(folder, name)
                self._snapshot.used_bytes[file.blob] += file.size
                entries[name] = file
        return entries

    def _share_file(self, old: Entry | None, status: os.stat_result) -> FrozenFile | None:
        """Return the file as it was in the previous snapshot, if it has not changed since."""
        if not isinstance(old, FrozenFile) or old.original != fingerprint(status):
            return None
        if old.blob not in self._is_shared:
            self._is_shared[old.blob] = self._share_blob(old.blob)
        if not self._is_shared[old.blob]:
            return None
        self._snapshot.stats.shared_bytes += old.size
        return old

    def _share_blob(self, blob: str) -> bool:
        """Link a blob of the previous snapshot. Return False if that is not possible.

        Neither is it if less than half of the blob was in use: then its files move to a new pack.
        """
        assert self._previous is not None
        path = self._previous.path / blob
        try:
            if self._previous.used_bytes[blob] * 2 < os.stat(path).st_size:
                return False
            self._blobs.link(path, blob)
        except OSError:
            return False
        return True

    def _freeze_file(self, folder: SafeFolder, name: str) -> FrozenFile:
        stats = self._snapshot.stats
        with open_file(name, folder) as (opened, status):
            metadata, state = Metadata.of(status), fingerprint(status)
            if (data := read_small(opened, status)) is not None:
                stats.count_copied(len(data))
                offset = self._pack.tell()
                self._pack.write(data)
                return FrozenFile(metadata, state, self._pack_name, len(data), offset)
            with new_file(blob := next(_blob_names), self._blobs) as created:
                copy_contents(opened, created, status, stats)
            return FrozenFile(metadata, state, blob, status.st_size, None)


def restore_snapshot(snapshot: Snapshot, folder: Path, *, read_only: Collection[str] = ()) -> None:
    """Restore `folder` to its state in `snapshot`. Files that have not changed since are kept.

    So are the paths `read_only`: code cannot have changed them, and a file that is replaced would
    no longer be protected.
    """
    with (
        SafeFolder.at(snapshot.path) as blobs,
        open_folder(str(folder), rights=ALL_RIGHTS) as target,
    ):
        # A file that was replaced now equals the original: the next restore need not replace it.
        thawer = _Thawer(blobs, CopyStats(), read_only)
        snapshot.entries = thawer.restore_entries(snapshot.entries, target)


def flat_entries(entries: Mapping[str, Entry], prefix: str = "") -> dict[str, Entry]:
    """Return what is in `entries` and below by its path. Folders are without their entries."""
    found = dict[str, Entry]()
    for name, entry in entries.items():
        if isinstance(entry, FrozenFolder):
            found[f"{prefix}{name}"] = entry._replace(entries={})
            found |= flat_entries(entry.entries, f"{prefix}{name}/")
        else:
            found[f"{prefix}{name}"] = entry
    return found


def read_frozen(snapshot: Snapshot, file: FrozenFile, max_bytes: int) -> bytes:
    """Return up to `max_bytes` of the data of a file of `snapshot`."""
    with (
        SafeFolder.at(snapshot.path) as blobs,
        open_file(file.blob, blobs) as (opened, _),
    ):
        return os.pread(opened, min(file.size, max_bytes), file.offset or 0)


def restore_entry(snapshot: Snapshot, entry: Entry, folder: SafeFolder, name: str) -> Entry:
    """Create `entry` of `snapshot` as `name` in `folder`, where it is missing. Return what it is.

    The `original` of a file is now the fingerprint of the new one.
    """
    with SafeFolder.at(snapshot.path) as blobs:
        return _Thawer(blobs, CopyStats()).restore_entry(entry, folder, "", name, is_kept=False)


def copy_folder(
    source: Path | Snapshot, target: Path, max_copied_bytes: int | None = None
) -> Snapshot | None:
    """Copy a folder, or what is in a snapshot of it, to the new or empty folder `target`.

    Both can be changed afterwards. For a snapshot, return what the first one of `target` can share
    with it: the large files. Raise `CheckpointError` as `take_snapshot` does.
    """
    target.mkdir(parents=True, exist_ok=True)
    stats = CopyStats(max_copied_bytes=max_copied_bytes)
    with SafeFolder.at(target) as copy:
        if isinstance(source, Snapshot):
            with SafeFolder.at(source.path) as blobs:
                entries = _Thawer(blobs, stats).restore_entries(source.entries, copy)
            return Snapshot(source.path, stats, _large_files(entries), source.used_bytes)
        with open_folder(str(source)) as original:
            copy_entries(original, copy, stats)
    return None


def _large_files(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return the files that are not in a pack. To remember all would take memory in each branch."""
    found = dict[str, Entry]()
    for name, entry in entries.items():
        if isinstance(entry, FrozenFolder):
            found[name] = entry._replace(entries=_large_files(entry.entries))
        elif isinstance(entry, FrozenFile) and entry.offset is None:
            found[name] = entry
    return found


class _Thawer:
    """What restores files from the open folder `blobs` of a snapshot."""

    def __init__(
        self, blobs: SafeFolder, stats: CopyStats, read_only: Collection[str] = ()
    ) -> None:
        self._blobs, self._stats, self._read_only = blobs, stats, read_only

    def restore_entries(
        self, entries: Mapping[str, Entry], target: SafeFolder, prefix: str = ""
    ) -> dict[str, Entry]:
        """Restore what is in `target`, whose path ends with `prefix`. Return what it is now."""
        kept = set[str]()
        for name, status in list(target.statuses()):
            if f"{prefix}{name}" in self._read_only or _is_same(entries.get(name), status):
                kept.add(name)
            else:
                with name_denied(name, target):
                    target.remove(name)
        return {
            name: self.restore_entry(entry, target, prefix, name, is_kept=name in kept)
            for name, entry in entries.items()
        }

    def restore_entry(
        self, entry: Entry, target: SafeFolder, prefix: str, name: str, *, is_kept: bool
    ) -> Entry:
        """Create `entry` as `name` in `target`, unless it `is_kept`. Return what it is now."""
        path = f"{prefix}{name}"
        if is_kept and (path in self._read_only or not isinstance(entry, FrozenFolder)):
            return entry
        if isinstance(entry, str):
            target.create_link(name, entry)
            return entry
        if isinstance(entry, FrozenFile):
            return self._restore_file(entry, target, name)
        opened = open_folder(name, target, ALL_RIGHTS) if is_kept else target.new_folder(name)
        with opened as inner:
            entries = self.restore_entries(entry.entries, inner, f"{path}/")
            entry.metadata.set_on_folder(inner)
        return entry._replace(entries=entries)

    def _restore_file(self, file: FrozenFile, target: SafeFolder, name: str) -> FrozenFile:
        with (
            open_file(file.blob, self._blobs) as (opened, status),
            new_file(name, target) as created,
        ):
            if file.offset is None:
                copy_contents(opened, created, status, self._stats)
            else:
                self._stats.count_copied(file.size)
                write_all(created, os.pread(opened, file.size, file.offset))
            file.metadata.set_on(created)
            return file._replace(original=fingerprint(os.fstat(created)))


def _is_same(entry: Entry | None, status: os.stat_result) -> bool:
    """Return True for a folder, and for a file that has not changed."""
    if isinstance(entry, FrozenFolder):
        return stat.S_ISDIR(status.st_mode)
    return isinstance(entry, FrozenFile) and entry.original == fingerprint(status)
