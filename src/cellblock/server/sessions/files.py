"""SessionFolder: the files of a session, from outside.

Code in the session owns the folder, and may change it at any moment: see `SafeFolder`.
"""

from __future__ import annotations

import contextlib
import errno
import mimetypes
import os
import stat
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar
from urllib.parse import quote

from ...errors import WorkspaceError
from ...runtime.linux.safe_folder import TEMPORARY, SafeFolder
from ..refusals import FileMissing, InvalidFileName

DATA_DIR = "/mnt/data"
_HOME = "~"
T = TypeVar("T")
_BLOCK_FILES = ("tmp_code_", ".tmp_code_")
_MAX_NAME_BYTES, _MAX_DEPTH = 255, 16
_MAX_ENTRIES = 10_000


@dataclass(frozen=True)
class FileInfo:
    """One file or folder. `path` is relative to /mnt/data, `modified` in seconds since 1970.

    url_path   the same percent-encoded. It is exact: in `path`, bytes that are not UTF-8 are
               replaced
    """

    path: str
    size_bytes: int
    modified: float
    is_folder: bool = False
    url_path: str = ""

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def content_type(self) -> str:
        """The MIME type that the name suggests."""
        return mimetypes.guess_type(self.name)[0] or "application/octet-stream"


class SessionFolder:
    """The files below `folder`. All names are relative to it, or absolute below /mnt/data.

    `on_write` is called with the path of each file that was written. `home` is the folder `~`,
    unless `folder` has one of this name. All methods block.
    """

    def __init__(
        self,
        folder: Path,
        on_write: Callable[[str], object] = lambda name: None,
        home: Path | None = None,
    ) -> None:
        self._folder, self._on_write, self._home = str(folder), on_write, home

    def list_folder(self, name: str = "", *, recursive: bool = False) -> list[FileInfo]:
        """Return the files and folders in a folder, sorted by path. At most 10 000 of them.

        If there are more, some in subfolders are left out. Raise `FileMissing`, and
        `InvalidFileName` also if `name` is a file.
        """
        given = split_name(name) if name.strip("/") not in ("", DATA_DIR.strip("/")) else ()
        found = list[FileInfo]()
        with _translate_errors(name), self._open_listed(name, *self._locate(given)) as folder:
            for info in _scan(folder, "/".join(given), _MAX_DEPTH if recursive else 0):
                found.append(info)
                if len(found) >= _MAX_ENTRIES:
                    break
        return sorted(found, key=lambda info: info.path)

    def info(self, name: str) -> FileInfo:
        """Return what is known about a file. Raise `FileMissing` and `InvalidFileName`."""
        file = self.open(name)
        with file:
            return _file_info("/".join(split_name(name)), os.fstat(file.fileno()))

    def open(self, name: str) -> BinaryIO:
        """Open a file to read it. Raise `FileMissing` and `InvalidFileName`."""
        top, *parents, last = self._split(name)
        with _translate_errors(name), SafeFolder.at(top, *parents) as folder:
            return folder.read_file(last)

    def write(self, name: str, write: Callable[[BinaryIO], T]) -> T:
        """Create or replace a file: call `write` with a temporary one, then rename it.

        The file is complete or unchanged. Folders on the way are created. Raise `InvalidFileName`,
        also if the name is that of a folder or needs a folder where a file is; `WorkspaceError` if
        it cannot be written, and what `write` raises.
        """
        top, *parents, last = self._split(name)
        with (
            _translate_errors(name),
            _refuse_conflicts(name),
            SafeFolder.at(top, *parents, create=True) as folder,
        ):
            with folder.replace_file(last) as file:
                result = write(file)
            if top == self._folder:
                self._on_write("/".join((*parents, last)))
            return result

    def delete(self, name: str, *, folders: bool = False) -> None:
        """Delete a file; with `folders`, also a folder with all that is in it.

        Raise `FileMissing`, `InvalidFileName`, and `WorkspaceError` for what cannot be deleted.
        """
        top, *parents, last = self._split(name)
        with _translate_errors(name), SafeFolder.at(top, *parents) as folder:
            (folder.remove if folders else folder.unlink)(last)

    def _split(self, name: str) -> tuple[str, ...]:
        """Return the folder on this machine that the file `name` is below, and the names in it."""
        top, *names = self._locate(split_name(name))
        if not names:
            raise InvalidFileName(f"{name!r} is the home folder. Name what is in it.")
        return (top, *names)

    def _locate(self, names: tuple[str, ...]) -> tuple[str, ...]:
        if self._home is None or names[:1] != (_HOME,):
            return (self._folder, *names)
        is_own = os.path.lexists(os.path.join(self._folder, _HOME))
        return (self._folder, *names) if is_own else (str(self._home), *names[1:])

    def _open_listed(self, name: str, top: str, *parts: str) -> SafeFolder:
        """Open a folder. Raise `InvalidFileName` if it is a file."""
        if parts:
            *parents, last = parts
            with SafeFolder.at(top, *parents) as parent:
                if stat.S_ISREG(parent.stat(last).st_mode):
                    raise InvalidFileName(f"{name!r} is not a folder.")
        return SafeFolder.at(top, *parts)


@contextlib.contextmanager
def _translate_errors(name: str) -> Generator[None]:
    try:
        yield
    except WorkspaceError:
        raise
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise WorkspaceError(
                f"{name!r} cannot be used in the session's folder: {error.strerror}."
            ) from error
        raise FileMissing(f"The session has no file {name!r}{_NO_FILE[error.errno]}.") from error


# Why there is no file, after a colon.
_NO_FILE = {
    errno.ENOENT: "",
    errno.ENOTDIR: "",
    errno.EISDIR: ": it is a folder",
    errno.ELOOP: ": it is a link",
    errno.ENXIO: ": it is not a regular file",
}


def split_name(name: str) -> tuple[str, ...]:
    """Return the parts of a file name relative to /mnt/data. Raise `InvalidFileName`."""
    relative = name.removeprefix(f"{DATA_DIR}/")
    parts = tuple(part for part in relative.split("/") if part not in ("", "."))
    if relative.startswith("/") or ".." in parts or not parts or len(parts) > _MAX_DEPTH:
        raise InvalidFileName(
            f"{name[:300]!r} is not a file name in {DATA_DIR}. Use a name such as 'data.csv'."
        )
    for part in parts:
        try:
            size = len(os.fsencode(part))
        except UnicodeEncodeError as error:
            raise InvalidFileName(f"{name[:300]!r} is not valid UTF-8.") from error
        if size > _MAX_NAME_BYTES or "\0" in part or part.startswith(TEMPORARY):
            raise InvalidFileName(
                f"{name[:300]!r} is not a valid file name. Names have at most {_MAX_NAME_BYTES} "
                "bytes, and no NUL."
            )
    return parts


@contextlib.contextmanager
def _refuse_conflicts(name: str) -> Generator[None]:
    """Refuse the name of a new file that needs a folder to be a file, or the reverse."""
    try:
        yield
    except IsADirectoryError as error:
        raise InvalidFileName(f"{name!r} is a folder. Use another name.") from error
    except NotADirectoryError as error:
        raise InvalidFileName(
            f"{name!r} cannot be created: {error.filename!r} is a file or link, not a folder."
        ) from error


def _scan(folder: SafeFolder, prefix: str, depth: int) -> Iterator[FileInfo]:
    subfolders = list[tuple[str, str]]()
    for name, status in folder.statuses():
        if name.startswith((TEMPORARY, *_BLOCK_FILES)):
            continue
        path = f"{prefix}/{name}" if prefix else name
        if stat.S_ISREG(status.st_mode):
            yield _file_info(path, status)
        elif stat.S_ISDIR(status.st_mode):
            yield _info(path, 0, status.st_mtime, is_folder=True)
            subfolders.append((name, path))
    for name, path in subfolders if depth else ():
        with contextlib.suppress(OSError), folder.folder(name) as inner:
            yield from _scan(inner, path, depth - 1)


def _file_info(path: str, status: os.stat_result) -> FileInfo:
    return _info(path, status.st_size, status.st_mtime)


def _info(path: str, size: int, modified: float, *, is_folder: bool = False) -> FileInfo:
    """Return what is known about a file. `path` is as `os` shows it."""
    exact = os.fsencode(path)
    return FileInfo(exact.decode(errors="replace"), size, modified, is_folder, quote(exact))
