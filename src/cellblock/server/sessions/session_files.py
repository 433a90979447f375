"""SessionFiles: the files of a session, on this machine or another one."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol

from ...limits import KIB
from .files import FileInfo, SessionFolder

# Holds so many bytes of the disk quota during the context, or raises `DiskQuotaExceeded`.
RoomFor = Callable[[int], AbstractAsyncContextManager[object]]
_SMALL_BYTES = 64 * KIB  # that are read and written without a thread, which would cost more


class OpenFile(Protocol):
    """A file that is read.

    size_bytes    its size when it was opened
    modified_ns   when it was changed, in nanoseconds since 1970
    """

    size_bytes: int
    modified_ns: int

    async def read(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes from `offset` on; none at the end."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class SessionFiles(Protocol):
    """The files of a session. For names and errors see `SessionFolder`."""

    async def list_folder(self, name: str = "", *, recursive: bool = False) -> list[FileInfo]:
        """Return the files and folders in a folder, sorted by path."""
        ...

    async def info(self, name: str) -> FileInfo:
        """Return what is known about a file."""
        ...

    async def open(self, name: str) -> OpenFile:
        """Open a file to read it."""
        ...

    async def write(self, name: str, content: BinaryIO) -> None:
        """Create or replace a file with the whole of `content`.

        Raise `DiskQuotaExceeded` before anything is written.
        """
        ...

    async def delete(self, name: str, *, folders: bool = False) -> None:
        """Delete a file; with `folders`, also a folder with all that is in it."""
        ...


class LocalFile(OpenFile):
    """A file of this machine."""

    def __init__(self, file: BinaryIO) -> None:
        status = os.fstat(file.fileno())
        self.size_bytes, self.modified_ns = status.st_size, status.st_mtime_ns
        self._file = file

    async def read(self, offset: int, size: int) -> bytes:
        """See `OpenFile`."""
        read = partial(os.pread, self._file.fileno(), size, offset)
        small = min(size, self.size_bytes) <= _SMALL_BYTES
        return read() if small else await asyncio.to_thread(read)

    def close(self) -> None:
        """See `OpenFile`."""
        self._file.close()


class LocalFiles(SessionFiles):
    """Files in a folder of this machine. See `SessionFolder`."""

    def __init__(
        self,
        folder: Path,
        room_for: RoomFor,
        on_write: Callable[[str], object] = lambda name: None,
        home: Path | None = None,
    ) -> None:
        self._files, self._room_for = SessionFolder(folder, on_write, home), room_for

    async def list_folder(self, name: str = "", *, recursive: bool = False) -> list[FileInfo]:
        """See `SessionFiles`."""
        return await asyncio.to_thread(self._files.list_folder, name, recursive=recursive)

    async def info(self, name: str) -> FileInfo:
        """See `SessionFiles`."""
        return await asyncio.to_thread(self._files.info, name)

    async def open(self, name: str) -> LocalFile:
        """See `SessionFiles`."""
        return LocalFile(self._files.open(name))

    async def write(self, name: str, content: BinaryIO) -> None:
        """See `SessionFiles`."""
        size = size_of(content)
        write = partial(self._files.write, name, partial(shutil.copyfileobj, content))
        async with self._room_for(size):
            await (asyncio.to_thread(write) if size > _SMALL_BYTES else _call(write))

    async def delete(self, name: str, *, folders: bool = False) -> None:
        """See `SessionFiles`."""
        await asyncio.to_thread(self._files.delete, name, folders=folders)


async def _call(work: Callable[[], object]) -> None:
    work()


def size_of(content: BinaryIO) -> int:
    """Return the size of a file in bytes, and go to its start."""
    size = content.seek(0, os.SEEK_END)
    content.seek(0)
    return size


async def read_all(file: OpenFile, max_bytes: int, offset: int = 0) -> bytes:
    """Return at most `max_bytes` of a file from `offset` on, and close it."""
    try:
        data = bytearray()
        while len(data) < max_bytes and (
            piece := await file.read(offset + len(data), max_bytes - len(data))
        ):
            data += piece
        return bytes(data)
    finally:
        file.close()
