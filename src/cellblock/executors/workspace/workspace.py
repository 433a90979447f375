"""Workspace: write the files of blocks into the work folder, and list what the blocks changed.

Untrusted code owns everything in the folder, and may change it at any moment: see `SafeFolder`.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Container, Generator, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from ... import startup_files
from ...errors import WorkspaceError
from ...events import Event, FileCreated, Output
from ...runtime.linux.safe_folder import SafeFolder
from .fingerprint import FileFingerprint, fingerprint
from .folder_scan import FolderScan
from .git_files import GitFiles

_FILE_CLOCK = 5  # CLOCK_REALTIME_COARSE of Linux, see clock_gettime(2)
_SMALL_FILES, _SMALL_SCAN_COST = 200, 2_000  # a scan up to this size takes negligible time
_MAX_FINISHED_FILES = 20  # files of ended blocks in which later changes are reported
_TEMPORARY_NAME = re.compile(r"\.?tmp_code_[0-9a-f]{32}\.\w+")
_SETTLE_SECONDS = 0.02  # longer than a tick of the coarse clock: later changes get another time
# Limits of the kernel: links followed in one name, and characters of the name and its link targets.
_MAX_LINKS, _MAX_PATH_LENGTH = 40, 4096
_LINK_END = "/"  # a marker; no component of a path can contain it
# The output of a block whose file name is outside the work folder. Part of the contract.
OUTSIDE_WORKSPACE_TEXT = "Filename is not in the workspace"
_UNDONE_TEXT = "Removed, because Git would obey it outside the sandbox: {}.\n"


class OutsideWorkspace(Exception):
    """The file name is not in the work folder."""

    output = OUTSIDE_WORKSPACE_TEXT  # of a block with this file name


class ReadOnlyFile(OutsideWorkspace):
    """Blocks may not change the file, since other programs run it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.output = (
            f"{name} is read-only, because other programs run it. Use another file name, or ask "
            "for Policy(protect_startup_files=False)."
        )


class Workspace:
    """The folder `path`, which must exist. Errors refer to it as `display_path`."""

    def __init__(self, path: Path, display_path: str | None = None) -> None:
        _check_system()
        self.path = path.resolve()
        self.display_path = display_path or str(path)
        self._path_text = str(self.path)  # cached, because `Path` computes it each time
        self._path_prefix = os.path.join(self._path_text, "")
        self._owner_mode = 0
        status = self._stat()
        self._identity = status.st_dev, status.st_ino
        self._owner_mode = status.st_mode & 0o700
        self._last_changes: dict[str, FileFingerprint] = {}
        # Files of running blocks. They are not reported as changes.
        self._running_files: set[str] = set()
        # Fingerprints of the files of the last blocks, in the order in which the blocks ended.
        self._finished_files: dict[str, FileFingerprint | None] = {}
        self._finished_lock = threading.Lock()
        # (inode, change time) of the empty folder, and when it was first seen in that state.
        self._empty_state = (0, 0), 0.0
        # An empty state whose change time is so old that every later change alters it.
        self._settled_state = 0, 0
        self.is_small = True  # True until a scan finds otherwise
        # Startup files, as the last scan found them; None before the first scan.
        self._startup_files: dict[str, FileFingerprint] | None = None
        self._git_files: GitFiles | None = None  # None if new files of Git are not checked
        self.undone: list[str] = []  # new files of Git that the last `list_changes` has removed
        # Paths of files and folders that blocks may not change, also not from outside the sandbox.
        self.read_only: tuple[str, ...] = ()

    def _stat(self) -> os.stat_result:
        try:
            status = os.stat(self._path_text)
        except OSError as error:
            raise WorkspaceError(
                f"The work folder {self.display_path} cannot be opened: {error.strerror}. "
                "Create it again and call restart()."
            ) from error
        if self._owner_mode & ~status.st_mode:
            with contextlib.suppress(OSError):  # a block has changed it, as with `chmod 0 .`
                os.chmod(self._path_text, stat.S_IMODE(status.st_mode) | self._owner_mode)
        return status

    def check_identity(self) -> None:
        """Raise `WorkspaceError` if the folder is missing or was replaced by another one.

        Restore the rights that its owner had to it.
        """
        status = self._stat()
        if (status.st_dev, status.st_ino) != self._identity:
            raise WorkspaceError(
                f"The work folder {self.display_path} was replaced by another folder. "
                "Call restart() to use the new one."
            )

    def absolute_path(self, name: str) -> str:
        """Return the absolute path of `name`, a path relative to the folder."""
        return f"{self._path_prefix}{name}"

    def file_clock_now(self) -> int:
        """Return the current time in nanoseconds, by the clock that sets change times of files."""
        if sys.platform == "linux":
            return time.clock_gettime_ns(_FILE_CLOCK)
        return time.time_ns()

    def resolve(self, name: str) -> str:
        """Resolve `name` to a path relative to the folder.

        Raise `OutsideWorkspace`, and its subclass `ReadOnlyFile` for a path in `read_only`.
        """
        try:
            name.encode()
            real = resolve_links(self._path_prefix[:-1], name)
        except ValueError as error:  # NUL, lone surrogates
            raise OutsideWorkspace(name) from error
        if not real.startswith(self._path_prefix) or os.path.isdir(real):
            raise OutsideWorkspace(name)
        path = real[len(self._path_prefix) :]
        if any(f"{path}/".startswith(f"{top}/") for top in self.read_only):
            raise ReadOnlyFile(path)
        return path

    def write(self, name: str, text: str) -> int:
        """Write the file `name`, a path relative to the folder, atomically. Return its change time.

        Raise `WorkspaceError` if it cannot be written, and `OutsideWorkspace` if code has
        replaced a parent folder by a link.
        """
        return self.write_bytes(name, text.encode(errors="replace"))

    def write_bytes(self, name: str, data: bytes) -> int:
        """Write `data` to the file `name` as `write` does."""
        with self._translate_errors(name), self._open_parent(name, create=True) as folder:
            last = os.path.basename(name)
            with folder.replace_file(last) as file:
                file.write(data)
            return folder.stat(last).st_ctime_ns

    def read(self, name: str) -> tuple[bytes, int]:
        """Return the content and the permissions of the file `name`. Raise `WorkspaceError`."""
        try:
            with self._read(name) as file:
                return file.read(), os.fstat(file.fileno()).st_mode & 0o777
        except OSError as error:
            raise WorkspaceError(
                f"{name} in the work folder {self.display_path} cannot be read: {error.strerror}."
            ) from error

    @contextlib.contextmanager
    def _translate_errors(self, name: str) -> Generator[None]:
        try:
            yield
        except NotADirectoryError as error:
            raise OutsideWorkspace(name) from error
        except OSError as error:
            raise WorkspaceError(
                f"{name} cannot be written in the work folder {self.display_path}: "
                f"{error.strerror}."
            ) from error

    def _open_parent(self, name: str, *, create: bool = False) -> SafeFolder:
        # `Path` interns every component, so temporary names would stay in memory for ever.
        return SafeFolder.at(self._path_text, *name.split(os.sep)[:-1], create=create)

    def temporary_name(self, suffix: str, *, is_hidden: bool = False) -> str:
        """Return a new file name. Each run gets its own, also for the same code."""
        return f"{'.' * is_hidden}tmp_code_{os.urandom(16).hex()}.{suffix}"

    def write_temporary(self, name: str, text: str) -> int:
        """Write the file of a running block under a temporary name. Return its change time.

        Call `remove` or `mark_finished` when the block has ended.
        """
        with self._translate_errors(name), SafeFolder.at(self._path_text) as folder:
            changed = folder.write_new_file(name, text.encode(errors="replace"))
        self._running_files.add(name)
        return changed

    def register_running(self, name: str) -> None:
        """Register the temporary file of a block that the runtime server will write.

        Call `remove` when the block has ended.
        """
        self._running_files.add(name)

    def mark_finished(self, name: str) -> None:
        """Keep the file of a block that has ended.

        Changes by later blocks are reported as long as it is one of the last such files.
        """
        self._running_files.discard(name)
        with self._finished_lock:
            self._finished_files[name] = self._stat_file(name)
            if len(self._finished_files) > _MAX_FINISHED_FILES:
                del self._finished_files[next(iter(self._finished_files))]

    def ignore_upload(self, name: str) -> None:
        """Do not report the file `name` as a change, unless code changes it from now on.

        Someone else has written it, perhaps within one tick of the file clock.
        """
        state = self._stat_file(name)
        if state is not None:
            self._last_changes[name] = state
            if self._startup_files is not None and startup_files.is_startup_file(name):
                self._startup_files[name] = state

    def _stat_file(self, name: str) -> FileFingerprint | None:
        with contextlib.suppress(OSError), self._open_parent(name) as folder:
            return fingerprint(folder.stat(os.path.basename(name)))
        return None

    def _read(self, name: str) -> BinaryIO:
        with self._open_parent(name) as folder:
            return folder.read_file(os.path.basename(name))

    def _read_start(self, name: str, size: int) -> bytes:
        """Return up to `size` bytes of the file `name`, not of one it links to. Raise `OSError`."""
        with self._read(name) as file:
            return file.read(size)

    def remove(self, name: str) -> None:
        """Remove the file `name` if it still exists."""
        self._running_files.discard(name)
        # Code may have removed the file or the folder.
        with contextlib.suppress(OSError), self._open_parent(name) as folder:
            folder.unlink(os.path.basename(name))

    def list_changes(self, since: int | None, *, exclude: str) -> list[tuple[str, int]]:
        """Return path and size of the files created or changed since `since`, sorted by path.

        `since` is a time that `write` or `file_clock_now` returned, or `None` if the block never
        started. Skips `exclude`, hidden files, and the files of blocks that ended long ago, so that
        the cost does not grow with each block. Startup files are listed even so. Only a part of a
        very large folder is scanned.
        """
        self.undone = []
        if since is None:
            return []
        with contextlib.suppress(WorkspaceError):
            self._stat()
        if self.is_small and self._has_only_running_files():
            self._last_changes, self._startup_files = {}, {}
            return []
        scan = FolderScan(self._is_block_file)
        files = list(self._scan(scan))
        self.is_small = len(files) <= _SMALL_FILES and scan.cost <= _SMALL_SCAN_COST
        recent = {path: state for path, state in files if state.changed >= since}
        # The file clock is coarse. A change by the previous block can have the same time as the
        # start of this one, so skip files that have not changed since the previous scan.
        last, finished = dict(self._last_changes), self._finished_files
        changes = {
            path: state.size
            for path, state in recent.items()
            if path != exclude and state not in (last.get(path), finished.get(path))
        }
        self._last_changes = recent
        changes |= (changed := self._changed_startup_files(scan, since, last))
        if self._git_files is not None:
            for path in self._git_files.find_harmful(changed, scan.startup_files):
                self.remove(path)
                if self._stat_file(path) is None:
                    self.undone.append(path)
        for path in self.undone:
            changes.pop(path, None)
        return sorted((_printable_path(path), size) for path, size in changes.items())

    def change_events(self, block: int, since: int | None, *, exclude: str) -> Iterator[Event]:
        """Yield an event for each file that `list_changes` returns, and name what was removed."""
        for path, size in self.list_changes(since, exclude=exclude):
            yield FileCreated(block, path, size)
        if self.undone:
            names = ", ".join(map(_printable_path, self.undone))
            yield Output(block, "stderr", _UNDONE_TEXT.format(names))

    def record_startup_files(self, *, undo_git_files: bool) -> None:
        """Record which startup files exist, before the first block runs.

        With `undo_git_files`, `list_changes` removes later ones that would make Git run programs.
        """
        scan = FolderScan()
        for _ in self._scan(scan):
            pass
        self._startup_files = scan.startup_files
        if undo_git_files:
            self._git_files = GitFiles(scan.startup_files, self._read_start)

    def _changed_startup_files(
        self, scan: FolderScan, since: int, last: Mapping[str, FileFingerprint]
    ) -> dict[str, int]:
        """Return path and size of the startup files that are new or changed since the last scan.

        Times do not tell: a block can rename a folder with files that are older than it.
        """
        known, self._startup_files = self._startup_files, scan.startup_files
        return {
            path: state.size
            for path, state in scan.startup_files.items()
            if (state.changed >= since if known is None else known.get(path) != state)
            and last.get(path) != state
        }

    def _has_only_running_files(self) -> bool:
        """Return True if the folder contains only the files of running blocks."""
        try:
            # Scanning by path needs half the system calls. It is safe: only names are compared.
            return (
                _contains_only(self._running_files, self._path_text)
                if self._running_files
                else self._is_empty()
            )
        except OSError:
            return False

    def _is_empty(self) -> bool:
        """Return True if the folder is empty. Avoid listing it again if it has not changed."""
        status = os.stat(self._path_text)
        state = status.st_ino, status.st_ctime_ns  # code cannot set the change time
        if state == self._settled_state:
            return True
        if not _contains_only((), self._path_text):
            return False
        now = time.monotonic()
        if self._empty_state[0] != state:
            self._empty_state = state, now
        elif now > self._empty_state[1] + _SETTLE_SECONDS:
            self._settled_state = state
        return True

    def list_files(self) -> dict[str, FileFingerprint]:
        """Return all files that are not hidden, also those of running blocks.

        Only a part of a very large folder is scanned.
        """
        return dict(self._scan(FolderScan()))

    def _is_block_file(self, name: str) -> bool:
        """Return True if `name` is the file of a running block or of one that ended long ago."""
        return name.startswith(("tmp_code_", ".tmp_code_")) and (
            name in self._running_files
            or (name not in self._finished_files and _TEMPORARY_NAME.fullmatch(name) is not None)
        )

    def _scan(self, scan: FolderScan) -> Iterator[tuple[str, FileFingerprint]]:
        with contextlib.suppress(OSError), SafeFolder.at(self._path_text) as top:
            yield from scan.files(top)
            scan.add_missed_startup_files(top)


def _check_system() -> None:
    if sys.platform == "win32":
        raise WorkspaceError(
            "On Windows, executors cannot protect a work folder. Use Cellblock in WSL 2, or "
            "AzureContainerCodeExecutor with `cellblock serve`."
        )


def resolve_links(top: str, name: str) -> str:
    """Resolve `name` in the folder `top` as `os.path.realpath` does, with a limit on links.

    Missing files and link loops are not errors, as there. Without the limit, links made by code
    could keep it busy for ever. Raise `OutsideWorkspace` if the limit is exceeded.
    """
    path, rest, letters = "" if name.startswith("/") else top, name.split("/")[::-1], len(name)
    links, following = 0, list[str]()
    while rest and links <= _MAX_LINKS and letters <= _MAX_PATH_LENGTH:
        part = rest.pop()
        if part == _LINK_END:
            following.pop()
        elif part == "..":
            path = path.rpartition("/")[0]
        elif part not in ("", "."):
            step = f"{path}/{part}"
            target = None if step in following else _read_link(step)
            if target is None:
                path = step
                continue
            path = "" if target.startswith("/") else path
            rest += [_LINK_END, *target.split("/")[::-1]]
            links, letters = links + 1, letters + len(target)
            following.append(step)
    if rest:
        raise OutsideWorkspace(name)
    return path


def _read_link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:  # not a link, or missing
        return None


def _contains_only(names: Container[str], folder: str | int) -> bool:
    """Return True if the folder contains only `names`. Stop at the first other entry."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name not in names:
                return False
    return True


def _printable_path(path: str) -> str:
    """Return a path as text that can be printed. Names need not be UTF-8."""
    return os.fsencode(path).decode(errors="replace")
