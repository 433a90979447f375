"""SessionFiles: the files of a session, from outside.

Code in the session owns the folder, and can replace any name by a link or a device. So each step of
a path is opened relative to the folder before it, never through a link, and only regular files are
read.
"""

from __future__ import annotations

import contextlib
import mimetypes
import os
import secrets
import stat
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar
from urllib.parse import quote

from ...errors import WorkspaceError
from ...runtime.linux import files, open_flags
from ..refusals import FileMissing, InvalidFileName, InvalidRequest
from .executors import DATA_DIR

T = TypeVar("T")
_TEMPORARY = ".cellblock-"
_BLOCK_FILE = "tmp_code_"
_MAX_NAME_BYTES, _MAX_DEPTH = 255, 16
_MAX_ENTRIES = 10_000
_MAX_DELETED_DEPTH = 100  # of a folder that is deleted; each level keeps a descriptor open


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


class SessionFiles:
    """The files below `folder`. All names are relative to it, or absolute below /mnt/data.

    `check_disk` raises `DiskQuotaExceeded` if the folder has too much on disk. `on_write` is called
    with the path of each file that was written.
    """

    def __init__(
        self,
        folder: Path,
        check_disk: Callable[[], None],
        on_write: Callable[[str], object] = lambda name: None,
    ) -> None:
        self._folder, self._check_disk = str(folder), check_disk
        self._on_write = on_write

    def list_folder(self, name: str = "", *, recursive: bool = False) -> list[FileInfo]:
        """Return the files and folders in a folder, sorted by path. At most 10 000 of them.

        If there are more, some in subfolders are left out. Raise `FileMissing`, and
        `InvalidFileName` also if `name` is a file.
        """
        parts = split_name(name) if name.strip("/") not in ("", DATA_DIR.strip("/")) else ()
        found = list[FileInfo]()
        with self._translate_errors(name), self._open_listed(name, parts) as folder:
            for info in _scan(folder, "/".join(parts), _MAX_DEPTH if recursive else 0):
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
        *parents, last = split_name(name)
        with self._translate_errors(name), self._open_folder(parents) as folder:
            descriptor = os.open(last, open_flags.READ_FILE, dir_fd=folder)
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                os.close(descriptor)
                kind = "a folder" if stat.S_ISDIR(mode) else "no regular file"
                raise FileMissing(f"The session has no file {name!r}: it is {kind}.")
            return open(descriptor, "rb")

    def write(self, name: str, write: Callable[[BinaryIO], T]) -> T:
        """Create or replace a file: call `write` with a temporary one, then rename it.

        The file is complete or unchanged. Folders on the way are created. Raise `InvalidFileName`,
        also if the name is that of a folder or needs a folder where a file is; `DiskQuotaExceeded`,
        `WorkspaceError` if it cannot be written, and what `write` raises.
        """
        *parents, last = split_name(name)
        temporary = _TEMPORARY + secrets.token_hex(8)
        with (
            self._translate_errors(name),
            _refuse_conflicts(name),
            self._open_folder(parents, create=True) as folder,
        ):
            try:
                with open(files.create_file(temporary, folder), "wb") as file:
                    result = write(file)
                self._check_disk()
                os.replace(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)
                self._on_write("/".join((*parents, last)))
            except BaseException:
                files.remove_file(temporary, folder)
                raise
            return result

    def delete(self, name: str, *, folders: bool = False) -> None:
        """Delete a file; with `folders`, also a folder with all that is in it.

        Raise `FileMissing`, `InvalidFileName`, and `WorkspaceError` for what cannot be deleted.
        """
        *parents, last = split_name(name)
        with self._translate_errors(name), self._open_folder(parents) as folder:
            try:
                os.unlink(last, dir_fd=folder)
            except IsADirectoryError as error:
                if not folders:
                    message = f"The session has no file {name!r}: it is a folder."
                    raise FileMissing(message) from error
                _delete_folder(last, folder, _MAX_DELETED_DEPTH)

    @contextlib.contextmanager
    def _open_listed(self, name: str, parts: tuple[str, ...]) -> Generator[int]:
        """Open a folder as `_open_folder` does. Raise `InvalidFileName` if it is a file."""
        *parents, last = parts or ("",)
        with self._open_folder(parents) as parent:
            if last and stat.S_ISREG(os.stat(last, dir_fd=parent, follow_symlinks=False).st_mode):
                raise InvalidFileName(f"{name!r} is not a folder.")
        with self._open_folder(parts) as folder:
            yield folder

    @contextlib.contextmanager
    def _open_folder(
        self, parts: Iterator[str] | list[str] | tuple[str, ...], *, create: bool = False
    ) -> Generator[int]:
        folder = os.open(self._folder, open_flags.FOLDER)
        try:
            for part in parts:
                if create:
                    _make_folder(part, folder)
                inner = os.open(part, open_flags.FOLDER, dir_fd=folder)
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def _translate_errors(self, name: str) -> Generator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise FileMissing(f"The session has no file {name!r}.") from error
        except (WorkspaceError, InvalidRequest, FileMissing):
            raise
        except OSError as error:
            if error.errno in _LINK_ERRORS:
                raise FileMissing(f"The session has no file {name!r}: it is a link.") from error
            raise WorkspaceError(
                f"{name!r} cannot be used in the session's folder: {error.strerror}."
            ) from error


_LINK_ERRORS = (40, 6)  # ELOOP: a link; ENXIO: a socket


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
        if size > _MAX_NAME_BYTES or "\0" in part or part.startswith(_TEMPORARY):
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


def _delete_folder(name: str, parent: int, depth: int) -> None:
    """Delete a folder and what is in it, without following links."""
    if not depth:
        raise InvalidFileName(
            f"The folder is more than {_MAX_DELETED_DEPTH} folders deep. Delete it with code."
        )
    folder = os.open(name, open_flags.FOLDER, dir_fd=parent)
    try:
        with os.scandir(folder) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for inner, is_folder in found:
            if is_folder:
                _delete_folder(inner, folder, depth - 1)
            else:
                os.unlink(inner, dir_fd=folder)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=parent)


def _make_folder(name: str, parent: int) -> None:
    try:
        os.mkdir(name, dir_fd=parent)
    except FileExistsError:
        return
    with contextlib.suppress(OSError):  # code can replace it at once; opening it tells
        inner = os.open(name, open_flags.FOLDER, dir_fd=parent)
        try:
            files.give_to_folder_owner(inner, parent)
        finally:
            os.close(inner)


def _scan(folder: int, prefix: str, depth: int) -> Iterator[FileInfo]:
    subfolders = list[tuple[str, str]]()
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith((_TEMPORARY, _BLOCK_FILE)):
                continue
            path = f"{prefix}/{entry.name}" if prefix else entry.name
            with contextlib.suppress(OSError):  # removed meanwhile
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    yield _file_info(path, status)
                elif stat.S_ISDIR(status.st_mode):
                    yield _info(path, 0, status.st_mtime, is_folder=True)
                    subfolders.append((entry.name, path))
    for name, path in subfolders if depth else ():
        with contextlib.suppress(OSError):
            yield from _scan_inner(name, folder, path, depth - 1)


def _scan_inner(name: str, folder: int, path: str, depth: int) -> Iterator[FileInfo]:
    inner = os.open(name, open_flags.FOLDER, dir_fd=folder)
    try:
        yield from _scan(inner, path, depth)
    finally:
        os.close(inner)


def _file_info(path: str, status: os.stat_result) -> FileInfo:
    return _info(path, status.st_size, status.st_mtime)


def _info(path: str, size: int, modified: float, *, is_folder: bool = False) -> FileInfo:
    """Return what is known about a file. `path` is as `os` shows it."""
    exact = os.fsencode(path)
    return FileInfo(exact.decode(errors="replace"), size, modified, is_folder, quote(exact))
