"""Copy files and folders between this machine and a box, in pieces."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from ..aio.background_loop import background_loop
from ..aio.running_loop import running_loop
from ..aio.shielded import run_in_thread
from ..executors.workspace.workspace import OutsideWorkspace, resolve_links
from ..runtime import protocol
from ..runtime.box_orders import BoxAnswer, ListFolder, MakeFolder, ReadFile, StatPath, WriteFile
from ..runtime.linux.safe_folder import Names, SafeFolder, too_deep
from ..runtime.packets import decode_fields
from .life import BoxLife, check_box_answer, check_room, single_entry

T = TypeVar("T")
_PIECE_BYTES = 1 << 20
_MAX_DEPTH = 250  # of folders in each other, which every program can remove: see `too_deep`
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


@contextlib.asynccontextmanager
async def _opened(opener: Callable[[], contextlib.AbstractContextManager[T]]) -> AsyncGenerator[T]:
    """Enter what `opener` returns, in a thread. It is left also if the task is cancelled then."""
    with contextlib.ExitStack() as stack:
        yield await run_in_thread(lambda: stack.enter_context(opener()))


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
        async with _opened(partial(_open_source, source)) as opened:
            if not isinstance(opened, SafeFolder):
                await self._file(opened, path)
                return
            await self._folder(path)
            for inner, file in await run_in_thread(lambda: [*entries_to_send(opened, source)]):
                if file is None:
                    await self._folder(f"{path}/{inner}")
                    continue
                async with _opened(partial(open_below, opened, file)) as content:
                    await self._file(content, f"{path}/{inner}")

    async def _folder(self, path: str) -> None:
        await self._life.ask(MakeFolder(0, path, self._user), path=path)

    async def _file(self, file: BinaryIO, path: str) -> None:
        mode = os.fstat(file.fileno()).st_mode & 0o777
        await self.stream(path, _pieces_of_file(file), mode)


def _open_source(source: Path) -> SafeFolder | BinaryIO:
    with _refusing_link(source):
        with contextlib.suppress(NotADirectoryError):
            return SafeFolder.at(source)
        with SafeFolder.at(source.parent.resolve()) as folder:
            return folder.read_file(source.name)


@contextlib.contextmanager
def _refusing_link(path: Path) -> Generator[None]:
    """Let an `OSError` name `path`, and say if it is a link: code may have put one there."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        if not path.is_symlink():
            raise
        why = "A symbolic link is not followed. Pass the path that it leads to"
        raise OSError(errno.ELOOP, why, str(path)) from error


def entries_to_send(folder: SafeFolder, path: Path) -> Iterator[tuple[str, Names | None]]:
    """Yield the path of each file and folder below `folder`, and a file's names for `open_below`.

    A link to a file in there, at `path`, is that file. Other links, which can lead to private files
    of this machine, are left out, and so are pipes and devices.
    """
    top = os.path.realpath(path)
    for names, status in folder.walk(_MAX_DEPTH):
        inner, kind = "/".join(names), stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFDIR:
            yield inner, None
        elif kind == stat.S_IFREG:
            yield inner, names
        elif kind == stat.S_IFLNK and (target := _linked_file(folder, top, inner)):
            yield inner, target


def _linked_file(folder: SafeFolder, path: str, link: str) -> Names | None:
    """Return the names of the file in `folder` that `link` leads to, if it does."""
    with contextlib.suppress(OSError, OutsideWorkspace):
        target = resolve_links(path, link)
        if target.startswith(f"{path}/"):
            names = tuple(target[len(path) + 1 :].split("/"))
            open_below(folder, names).close()
            return names
    return None


def open_below(folder: SafeFolder, names: Names) -> BinaryIO:
    """Open a file below `folder`. No link is followed, also if one has replaced it by now."""
    *above, name = names
    with folder.inner(*above) as inner:
        return inner.read_file(name)


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
            async with _opened(partial(_made_folder, place)) as folder:
                await self._folders(path, folder)
        else:
            check_room(entry.size, self._room, path)
            above = await run_in_thread(place.parent.resolve)  # a link there is the caller's
            async with _opened(partial(_made_folder, above)) as folder:
                await self._file(path, folder, place.name, entry.mode)

    async def _folders(self, path: str, top: SafeFolder) -> None:
        pending = [Names()]
        while pending:
            names = pending.pop()
            inner = "/".join((path, *names))
            if len(names) > _MAX_DEPTH:
                raise too_deep(_MAX_DEPTH, inner)
            answer, _ = await self._life.ask(ListFolder(0, inner, self._user), path=inner)
            async with _opened(partial(top.inner, *names, create=True)) as folder:
                for entry in answer.entries or ():
                    _check_name(entry.name)
                    if entry.kind == "file":
                        await self._file(f"{inner}/{entry.name}", folder, entry.name, entry.mode)
                    elif entry.kind == "folder" and not entry.is_link:
                        pending.append((*names, entry.name))

    async def _file(self, path: str, folder: SafeFolder, name: str, mode: int) -> None:
        async with _opened(partial(folder.replace_file, name)) as file:
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


def _made_folder(path: Path) -> SafeFolder:
    """Open a folder that the caller has named, and create it if it is missing."""
    with _refusing_link(path):
        path.mkdir(parents=True, exist_ok=True)
        return SafeFolder.at(path)


def _check_name(name: str) -> None:
    """Raise `OSError` for what is no name in a folder: the box has sent it."""
    if name in ("", ".", "..") or set(name) & set("/\0"):
        raise OSError(errno.EINVAL, "The box lists a file with an invalid name", name)
