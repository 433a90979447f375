"""Files: the files of a box, with the eyes and the rights of its commands."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterable
from typing import BinaryIO

from ..aio.background_loop import background_loop
from ..runtime.box_orders import (
    BoxAnswer,
    FileOrder,
    ListFolder,
    MakeFolder,
    ReadFile,
    RemovePath,
    ResolvePath,
    StatPath,
    WriteFile,
)
from .arguments import check_count, check_data, check_mode, check_path, check_user
from .life import BoxLife, single_entry
from .results import FileStatus
from .transfers import Download, pieces_of, upload

BoxPath = str | os.PathLike[str]
_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class Files:
    """The files of a box, as its commands see them. `Box.files` has them.

    A relative path begins at the work folder. Links are followed inside the box. `user` is the one
    who does it, as in `Box.exec`: what that user may not do in the box raises `PermissionError`.
    Other failures are the builtin `OSError` kinds too, with `errno`, and the path as `filename`.
    """

    def __init__(self, life: BoxLife) -> None:
        self._life = life

    async def _ask(self, order: FileOrder, data: bytes | None = None) -> tuple[BoxAnswer, bytes]:
        pieces = None if data is None else pieces_of(data)
        return await background_loop().call(self._life.ask(order, pieces, path=order.path))

    async def read(
        self, path: BoxPath, *, user: str | int | None = None, limit_bytes: int | None = None
    ) -> bytes:
        """Return the contents of a file. If it grows meanwhile: up to its size at the start.

        Raise `OSError` with `EFBIG` if it has more than `limit_bytes`, or, without waiting, if it
        is a pipe or a device.
        """
        limit = check_count("limit_bytes", limit_bytes)
        _, data = await self._ask(ReadFile(0, check_path(path), check_user(user), limit))
        return data

    async def read_text(
        self,
        path: BoxPath,
        encoding: str = "utf-8",
        errors: str = "strict",
        *,
        user: str | int | None = None,
        limit_bytes: int | None = None,
    ) -> str:
        """Return the contents of a file as text, with its line ends as they are."""
        data = await self.read(path, user=user, limit_bytes=limit_bytes)
        return data.decode(encoding, errors)

    async def write(
        self,
        path: BoxPath,
        data: bytes | str,
        *,
        user: str | int | None = None,
        mode: int | None = None,
    ) -> None:
        """Create or replace a file, and create the folders above it.

        A text is written as UTF-8. `mode` sets the permissions; otherwise an existing file keeps
        its own.
        """
        contents = check_data("data", data)
        if contents is None:
            raise ValueError("data must be bytes or a text, not None.")
        order = WriteFile(0, check_path(path), check_user(user), check_mode(mode))
        await self._ask(order, contents)

    async def list(self, path: BoxPath = ".", *, user: str | int | None = None) -> list[FileStatus]:
        """Return the entries of a folder, sorted by name."""
        answer, _ = await self._ask(ListFolder(0, check_path(path), check_user(user)))
        return [FileStatus.of(entry) for entry in answer.entries or ()]

    async def stat(
        self, path: BoxPath, *, follow_links: bool = True, user: str | int | None = None
    ) -> FileStatus:
        """Return what is known of a file, or of a link itself without `follow_links`."""
        order = StatPath(0, check_path(path), check_user(user), follow_links)
        answer, _ = await self._ask(order)
        return FileStatus.of(single_entry(answer))

    async def exists(self, path: BoxPath, *, user: str | int | None = None) -> bool:
        """Return True if the path names something, after links."""
        try:
            await self.stat(path, user=user)
        except OSError as error:
            if error.errno in _MISSING:
                return False
            raise
        return True

    async def make_dir(self, path: BoxPath, *, user: str | int | None = None) -> None:
        """Create a folder and those above it. It may exist. Raise `FileExistsError` for a file."""
        await self._ask(MakeFolder(0, check_path(path), check_user(user)))

    async def remove(
        self, path: BoxPath, *, missing_ok: bool = False, user: str | int | None = None
    ) -> None:
        """Remove a file, a link itself, or a folder with all in it.

        Raise `ValueError` for the work folder and those above it.
        """
        checked = check_path(path)
        try:
            await self._ask(RemovePath(0, checked, check_user(user), missing_ok))
        except OSError as error:
            if error.errno == errno.ENOTSUP:
                raise ValueError(
                    f"The work folder and those above it cannot be removed: {checked!r}."
                ) from error
            raise

    async def resolve(self, path: BoxPath, *, user: str | int | None = None) -> str:
        """Return the absolute path without links. What does not exist stays as it is."""
        answer, _ = await self._ask(ResolvePath(0, check_path(path), check_user(user)))
        return answer.path or ""

    async def upload(
        self,
        source: BoxPath | BinaryIO | AsyncIterable[bytes],
        path: BoxPath,
        *,
        user: str | int | None = None,
    ) -> None:
        """Copy a file or folder of this machine, or a stream, to `path` in the box.

        It is sent in pieces, so that its size does not matter. A folder is merged into one that
        exists. A link in it to a file in it becomes a file; other links, pipes and devices are left
        out. Raise `OSError` with `ELOOP` if `source` itself is a link, which code could have put
        there, and with `ENAMETOOLONG` if more than 250 folders are in each other.
        """
        await upload(self._life, source, check_path(path), check_user(user))

    async def download(
        self,
        path: BoxPath,
        target: BoxPath | BinaryIO,
        *,
        user: str | int | None = None,
        limit_bytes: int | None = None,
    ) -> None:
        """Copy a file or folder of the box to the path `target` on this machine, or to a stream.

        A folder is merged into one that exists. Names come from the box, so nothing is trusted:
        no link is made or followed here, and nothing is written outside `target`. A link to a file
        becomes a file; links to folders, pipes and devices are left out. Raise `OSError` with
        `EFBIG` if there are more than `limit_bytes` in all, and otherwise as `upload` does.
        """
        room = check_count("limit_bytes", limit_bytes)
        download = Download(self._life, user=check_user(user), room=room)
        await background_loop().call(download.run(check_path(path), target))
