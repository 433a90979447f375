"""The files that an image consists of: in a folder, or in an archive."""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Generator
from contextlib import AbstractContextManager
from typing import BinaryIO, Protocol

from ...errors import ImageUnusable
from ...runtime.linux.safe_folder import SafeFolder
from .byte_stream import Blob, Budget, ByteStream
from .tar_archive import Kind, Member, members
from .tree import split

_MAX_LINKS = 8


class ImageSource(Protocol):
    """The files of an image, by their path in it."""

    def has(self, path: str) -> bool:
        """Return True if there is such a file."""
        ...

    def open(self, path: str) -> AbstractContextManager[Blob]:
        """Yield a file's content. Raise `ImageUnusable` if it is missing, or not a plain file."""
        ...


class FolderFiles:
    """An image in a folder. Links in it are not followed: they could lead out."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def has(self, path: str) -> bool:
        """See `ImageSource`."""
        return os.path.lexists(os.path.join(self._folder, path))

    @contextlib.contextmanager
    def open(self, path: str) -> Generator[Blob]:
        """See `ImageSource`."""
        *above, name = path.split("/")
        try:
            with SafeFolder.at(self._folder, *above) as folder:
                descriptor = folder.open_file(name)
        except OSError as error:
            raise ImageUnusable(f"its file {path} cannot be read: {error.strerror}") from error
        with open(descriptor, "rb") as file:
            yield Blob(file, 0, os.fstat(descriptor).st_size)


class ArchiveFiles:
    """An image in a tar archive, in which a layer that occurs twice can be a link."""

    def __init__(self, file: BinaryIO, budget: Budget) -> None:
        self._file, self._members = file, dict[str, Member]()
        for member in members(_SeekableStream(file, budget)):
            budget.count_file()
            self._members["/".join(split(member.name))] = member

    def has(self, path: str) -> bool:
        """See `ImageSource`."""
        return path in self._members

    @contextlib.contextmanager
    def open(self, path: str) -> Generator[Blob]:
        """See `ImageSource`."""
        found = path
        for _ in range(_MAX_LINKS):
            member = self._members.get(found)
            if member is None:
                break
            if member.kind is Kind.FILE:
                yield Blob(self._file, member.position, member.size)
                return
            above = posixpath.dirname(found) if member.kind is Kind.SYMBOLIC_LINK else ""
            found = posixpath.normpath(posixpath.join(above, member.link))
        raise ImageUnusable(f"its file {path} is missing")


class _SeekableStream(ByteStream):
    """Passes over bytes of a file without reading them."""

    def __init__(self, file: BinaryIO, budget: Budget) -> None:
        super().__init__(file, budget)
        self._file, self._end = file, os.fstat(file.fileno()).st_size

    def skip(self, size: int) -> None:
        """See `ByteStream`."""
        self.position += size
        if self.position > self._end:
            raise ImageUnusable("its data is incomplete")
        self._file.seek(self.position)
