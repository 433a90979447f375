"""Copy files and folders between this machine and a box, in pieces."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import os
from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from ..aio.background_loop import background_loop
from ..aio.running_loop import running_loop
from ..aio.shielded import run_in_thread
from ..runtime import protocol
from ..runtime.box_orders import BoxAnswer, ListFolder, MakeFolder, ReadFile, StatPath, WriteFile
from ..runtime.linux.safe_folder import SafeFolder
from ..runtime.packets import decode_fields
from .life import BoxLife, check_box_answer, check_room, single_entry

_PIECE_BYTES = 1 << 20
_END = object()


async def pieces_of(data: bytes) -> AsyncGenerator[bytes, None]:
    """Yield `data`."""
    yield data


async def _pieces_of_file(file: BinaryIO) -> AsyncGenerator[bytes, None]:
    while piece := _check_piece(await run_in_thread(file.read, _PIECE_BYTES)):
        yield piece


def _check_piece(piece: object) -> bytes:
    """Return what a source has given as bytes."""
    if isinstance(piece, bytes | bytearray | memoryview):
        return bytes(cast("bytes", piece))
    raise ValueError(f"source must give bytes, not {piece!r:.100}.")


async def _pieces_of_other_loop(
    source: AsyncIterable[bytes], loop: asyncio.AbstractEventLoop
) -> AsyncGenerator[bytes, None]:
    """Yield what `source` yields on `loop`."""
    iterator = aiter(source)

    async def next_piece() -> object:
        return await anext(iterator, _END)

    while True:
        future = asyncio.run_coroutine_threadsafe(next_piece(), loop)
        if (piece := await asyncio.wrap_future(future)) is _END:
            return
        yield _check_piece(piece)


class Upload:
    """Copies to a box. It belongs to the background loop."""

    def __init__(self, life: BoxLife, user: str) -> None:
        self._life, self._user = life, user

    async def stream(
        self, path: str, pieces: AsyncIterable[bytes], mode: int | None = None
    ) -> None:
        """Write what `pieces` yields to a file of the box."""
        await self._life.ask(WriteFile(0, path, self._user, mode), pieces, path=path)

    async def path(self, source: Path, path: str) -> None:
        """Copy the file or folder `source`."""
        if not await run_in_thread(source.is_dir):
            await self._file(source, path)
            return
        await self._folder(path)
        for entry, inner, is_folder in await run_in_thread(lambda: [*_walk(source)]):
            if is_folder:
                await self._folder(f"{path}/{inner}")
            else:
                await self._file(entry, f"{path}/{inner}")

    async def _folder(self, path: str) -> None:
        await self._life.ask(MakeFolder(0, path, self._user), path=path)

    async def _file(self, source: Path, path: str) -> None:
        with await run_in_thread(_open_regular, source) as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
            await self.stream(path, _pieces_of_file(file), mode)


def _open_regular(source: Path) -> BinaryIO:
    if source.exists() and not source.is_file():
        raise OSError(errno.EINVAL, "Not a regular file or folder", str(source))
    return open(source, "rb")


def _walk(source: Path) -> Iterator[tuple[Path, str, bool]]:
    """Yield each folder and file below `source`, its path in there, and whether it is a folder.

    A link to a file in there is that file. Other links, which can lead to private files of this
    machine, are left out, and so are pipes and devices.
    """
    root = source.resolve()
    for folder, folders, files in os.walk(root, onerror=_raise):
        for name in sorted((*folders, *files)):
            path = Path(folder, name)
            target, inner = Path(os.path.realpath(path)), path.relative_to(root).as_posix()
            if target.is_file() and target.is_relative_to(root):
                yield target, inner, False
            elif path.is_dir() and not path.is_symlink():
                yield path, inner, True


def _raise(error: OSError) -> None:
    raise error


async def upload(
    life: BoxLife,
    source: str | os.PathLike[str] | BinaryIO | AsyncIterable[bytes],
    path: str,
    user: str,
) -> None:
    """Copy `source` to `path`. See `Files.upload`."""
    copying = Upload(life, user)
    if isinstance(source, str | os.PathLike):
        work = copying.path(Path(source), path)
    elif isinstance(source, AsyncIterable):
        work = copying.stream(path, _pieces_of_other_loop(source, running_loop()))
    elif callable(getattr(source, "read", None)):
        work = copying.stream(path, _pieces_of_file(source))
    else:
        raise ValueError(
            "source must be a path, an open binary file or an asynchronous iterable of bytes, "
            f"not {source!r:.100}."
        )
    await background_loop().call(work)


class Download:
    """A copy from a box of at most `room` bytes. It belongs to the background loop."""

    def __init__(self, life: BoxLife, *, user: str, room: int | None) -> None:
        self._life, self._user, self._room = life, user, room

    async def run(self, path: str, target: str | os.PathLike[str] | BinaryIO) -> None:
        """Copy the file or folder `path` to `target`."""
        if not isinstance(target, str | os.PathLike):
            if not callable(getattr(target, "write", None)):
                raise ValueError(f"target must be a path or an open file, not {target!r:.100}.")
            await self._read(path, target)
            return
        place = Path(target)
        answer, _ = await self._life.ask(StatPath(0, path, self._user), path=path)
        entry = single_entry(answer)
        if entry.kind == "folder":
            await self._folders(path, await run_in_thread(_made_folder, place))
        else:
            check_room(entry.size, self._room, path)
            parent = await run_in_thread(_made_folder, place.parent)
            with await run_in_thread(SafeFolder.at, parent) as folder:
                await self._file(path, folder, place.name, entry.mode)

    async def _folders(self, path: str, place: Path) -> None:
        pending = [tuple[str, ...]()]
        while pending:
            names = pending.pop()
            inner = "/".join((path, *names))
            answer, _ = await self._life.ask(ListFolder(0, inner, self._user), path=inner)
            open_folder = functools.partial(SafeFolder.at, place, *names, create=True)
            with await run_in_thread(open_folder) as folder:
                for entry in answer.entries or ():
                    _check_name(entry.name)
                    if entry.kind == "file":
                        await self._file(f"{inner}/{entry.name}", folder, entry.name, entry.mode)
                    elif entry.kind == "folder" and not entry.is_link:
                        pending.append((*names, entry.name))

    async def _file(self, path: str, folder: SafeFolder, name: str, mode: int) -> None:
        with contextlib.ExitStack() as stack:
            file = await run_in_thread(stack.enter_context, folder.replace_file(name))
            if mode & 0o100:
                os.chmod(file.fileno(), 0o755)
            await self._read(path, file)

    async def _read(self, path: str, file: BinaryIO) -> None:
        """Copy the contents of a file of the box to an open one."""
        order = ReadFile(0, path, self._user, self._room)
        pending = bytearray()
        answer = BoxAnswer()
        async with self._life.use() as link, contextlib.aclosing(link.frames(order)) as frames:
            async for frame in frames:
                if frame.kind == protocol.VALUE_CHUNK:
                    pending += frame.payload
                    check_room(len(pending), self._room, path)
                    if len(pending) >= _PIECE_BYTES:
                        await self._write(file, pending)
                elif frame.kind == protocol.BOX_REPLY:
                    answer = decode_fields(frame, BoxAnswer)
        check_box_answer(answer, path)
        await self._write(file, pending)

    async def _write(self, file: BinaryIO, pending: bytearray) -> None:
        if self._room is not None:
            self._room -= len(pending)
        data = bytes(pending)
        pending.clear()
        await run_in_thread(file.write, data)


def _made_folder(path: Path) -> Path:
    """Create a folder that its caller has named, and return its path without links."""
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()


def _check_name(name: str) -> None:
    """Raise `OSError` for what is no name in a folder: the box has sent it."""
    if name in ("", ".", "..") or set(name) & set("/\0"):
        raise OSError(errno.EINVAL, "The box lists a file with an invalid name", name)
