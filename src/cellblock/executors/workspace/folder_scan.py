"""FolderScan: find the files of a work folder, which code may change during the scan."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator

from ... import startup_files
from ...runtime.linux.safe_folder import SafeFolder
from .fingerprint import FileFingerprint, fingerprint

_MAX_FILES = 10_000  # that one scan yields
_MAX_COST = 100_000  # per scan; each name costs 1, hidden ones too
_FOLDER_COST = 20  # a subfolder costs more, because it has to be opened
_MAX_DEPTH = 16
IGNORED_NAMES = ("__pycache__", "node_modules")


class FolderScan:
    """One scan of a folder, which stops at a maximum cost.

    Skips the names in the top folder for which `is_ignored` returns True.
    """

    def __init__(self, is_ignored: Callable[[str], bool] | None = None) -> None:
        self._is_ignored = is_ignored
        self.cost = self._file_count = 0
        self.startup_files: dict[str, FileFingerprint] = {}  # found in passing

    def files(
        self, folder: SafeFolder, prefix: str = "", depth: int = _MAX_DEPTH
    ) -> Iterator[tuple[str, FileFingerprint]]:
        """Yield the files in the open folder and its subfolders that are not hidden."""
        is_ignored = None if prefix else self._is_ignored
        try:
            with folder.entries() as entries:
                for entry in entries:
                    if self.cost >= _MAX_COST:
                        return
                    self.cost += 1
                    name = entry.name
                    path = os.path.join(prefix, name)
                    if startup_files.is_startup_name(name):
                        is_folder = entry.is_dir(follow_symlinks=False)
                        self._add_startup_files(name, folder, path, is_folder, depth)
                    if (
                        name.startswith(".")
                        or name in IGNORED_NAMES
                        or (is_ignored is not None and is_ignored(name))
                    ):
                        continue
                    if entry.is_file(follow_symlinks=False):
                        self._file_count += 1
                        if self._file_count > _MAX_FILES:
                            continue  # there may still be startup files
                        yield path, fingerprint(entry.stat(follow_symlinks=False))
                    elif depth and entry.is_dir(follow_symlinks=False):
                        yield from self._subfolder_files(name, folder, path, depth - 1)
        except OSError:
            return  # code has removed the folder during the scan

    def _subfolder_files(
        self, name: str, folder: SafeFolder, path: str, depth: int
    ) -> Iterator[tuple[str, FileFingerprint]]:
        self.cost += _FOLDER_COST
        with contextlib.suppress(OSError), folder.folder(name) as inner:
            yield from self.files(inner, path, depth)

    def add_missed_startup_files(self, top: SafeFolder) -> None:
        """Add the startup files at the top, if the scan has ended before it could find them all."""
        if self.cost < _MAX_COST:
            return
        for name in startup_files.NAMES:
            self.cost = 0  # a full folder must not hide another one
            with contextlib.suppress(OSError):
                status = top.stat(name)
                is_folder = stat.S_ISDIR(status.st_mode)
                self._add_startup_files(name, top, name, is_folder, _MAX_DEPTH)
        self.cost = _MAX_COST

    def _add_startup_files(
        self, name: str, folder: SafeFolder, path: str, is_folder: bool, depth: int
    ) -> None:
        """Add the startup file or link `name` of the open `folder`, or those in it."""
        self.cost += 1
        if not is_folder:
            if startup_files.is_startup_file(path):
                self.startup_files[path] = fingerprint(folder.stat(name))
        elif depth and startup_files.can_contain_startup_files(path):
            self.cost += _FOLDER_COST
            with contextlib.suppress(OSError), folder.folder(name) as inner:
                with inner.entries() as entries:
                    for other in entries:
                        if self.cost >= _MAX_COST:
                            return
                        other_path, is_inner = (
                            f"{path}/{other.name}",
                            other.is_dir(follow_symlinks=False),
                        )
                        self._add_startup_files(other.name, inner, other_path, is_inner, depth - 1)
