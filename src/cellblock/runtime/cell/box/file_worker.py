"""A process that works on the files of a box. It makes the system calls, so the kernel decides.

It is a fork of the first process, confined as the commands are. Orders come as `BOX_REQUEST`, one
at a time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import select
import socket
import stat
from collections.abc import Generator

from ... import protocol
from ...box_orders import (
    FILE_ORDERS,
    BoxAnswer,
    FileEntry,
    FileOrder,
    ListFolder,
    MakeFolder,
    ReadFile,
    RemovePath,
    ResolvePath,
    StatPath,
    WriteFile,
)
from ...linux.retry import retry
from ...linux.safe_folder import TEMPORARY, SafeFolder
from ...packets import decode_packet, encode_packet
from .confined_fork import Confined

_MAX_UNSIZED_BYTES = 1 << 26
_PIECE_BYTES = 1 << 18
_READ_BYTES = 1 << 16
_MAX_ENTRIES = 500  # in one frame, however long their paths are
# Open without waiting for the other end of a pipe, and without getting a terminal.
_OPEN = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PRIVATE, _USUAL = 0o600, 0o666  # permissions of new files; the second ones by the umask


class RequestCancelled(Exception):
    """Nobody waits for the answer any more."""


class OrderStream:
    """The worker's end of the stream to the first process."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream, self._decoder = stream, protocol.Decoder()
        self._frames = self._receive()
        self.run = 0  # of the order that is carried out
        self._poll = select.poll()
        self._poll.register(stream, select.POLLIN)

    def _receive(self) -> Generator[protocol.Frame]:
        while data := retry(lambda: self._stream.recv(_READ_BYTES)):
            yield from self._decoder.feed(data)
        raise EOFError

    def next_order(self) -> FileOrder:
        """Return the next order. Frames of the one before are skipped."""
        while (frame := next(self._frames)).kind != protocol.BOX_REQUEST:
            pass
        self.run = frame.run
        return decode_packet(frame.payload, *FILE_ORDERS)

    def pieces(self) -> Generator[bytes]:
        """Yield the data of the order. Each piece was used when the next one is asked for."""
        while frame := self._next_of_order():
            if not frame.payload:
                return
            yield frame.payload
            self.send(protocol.encode(protocol.BOX_TAKEN, self.run))

    def _next_of_order(self) -> protocol.Frame:
        frame = next(self._frames)
        if frame.kind == protocol.CANCEL:
            raise RequestCancelled
        return frame

    def check_cancelled(self) -> None:
        """Raise `RequestCancelled` if the order, which has no data, is cancelled."""
        if self._poll.poll(0):
            self._next_of_order()

    def send(self, frame: bytes) -> None:
        """Send a frame, and wait until there is room."""
        self._stream.sendall(frame)

    def send_chunk(self, data: bytes) -> None:
        """Send a piece of what an order without data asks for. Raise `RequestCancelled`."""
        self.send(protocol.encode(protocol.VALUE_CHUNK, self.run, data))
        self.check_cancelled()


def serve_files(link: socket.socket, folder: str, confined: Confined) -> None:
    """Work on files until the link is closed."""
    stream = OrderStream(link)
    while True:
        order = stream.next_order()
        if confined.refusal:
            error = PermissionError(errno.EPERM, confined.refusal)
            stream.send(BoxAnswer.from_error(error).encode(stream.run))
            continue
        try:
            if not os.path.isabs(order.path):
                os.chdir(folder)
            frame = _carry_out(order, stream, folder).encode(stream.run)
        except RequestCancelled:
            error = OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
            frame = BoxAnswer.from_error(error, order.path).encode(stream.run)
        except (OSError, ValueError, OverflowError, MemoryError, RecursionError) as error:
            frame = BoxAnswer.from_error(error, order.path).encode(stream.run)
        stream.send(frame)


def _carry_out(order: FileOrder, stream: OrderStream, work_dir: str) -> BoxAnswer:
    path = order.path
    match order:
        case ReadFile():
            _read(order, stream)
        case WriteFile():
            _write(order, stream)
        case ListFolder():
            return _listed(BoxAnswer(entries=tuple(_list(path, work_dir))), stream)
        case StatPath():
            status = os.stat(path) if order.follows_links else os.lstat(path)
            shown = _absolute(path, work_dir)
            is_link = stat.S_ISLNK(os.lstat(path).st_mode)
            return BoxAnswer(entries=(_describe(shown, status, is_link=is_link),))
        case MakeFolder():
            os.makedirs(path, exist_ok=True)
        case RemovePath():
            with contextlib.suppress(*[FileNotFoundError] * order.may_miss):
                _remove(path, work_dir)
        case ResolvePath():
            return BoxAnswer(path=os.path.realpath(path))
    return BoxAnswer()


def _read(order: ReadFile, stream: OrderStream) -> None:
    descriptor = os.open(order.path, os.O_RDONLY | _OPEN)
    try:
        size, limit = _check_regular(os.fstat(descriptor)).st_size, order.limit_bytes
        if limit is not None and size > limit:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        if size:  # even if the file grows meanwhile, perhaps faster than it is read
            most, beyond = size, 0
        else:  # files in /proc do not know theirs
            most, beyond = _MAX_UNSIZED_BYTES if limit is None else limit, 1
        while data := os.read(descriptor, min(_PIECE_BYTES, most + beyond)):
            most -= len(data)
            if most < 0:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
            stream.send_chunk(data)
    finally:
        os.close(descriptor)


def _check_regular(status: os.stat_result) -> os.stat_result:
    """Raise `OSError` if it is no file to read or write: a pipe would have to be waited for."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "Not a regular file")
    return status


def _write(order: WriteFile, stream: OrderStream) -> None:
    """Replace the file in one step if possible, and otherwise write into it.

    The latter keeps what a new file would not have: its owner, and its other names.
    """
    if os.path.basename(order.path) in ("", ".", ".."):
        _check_regular(os.stat(order.path))
    target = os.path.realpath(order.path)
    _make_parents(target)
    existing = _open_existing(target)
    try:
        if existing < 0:
            _replace(target, stream, order.mode, existing)
            return
        status = _check_regular(os.fstat(existing))
        if status.st_nlink == 1 and status.st_uid == os.geteuid():
            mode = stat.S_IMODE(status.st_mode) if order.mode is None else order.mode
            _replace(target, stream, mode, existing)
        else:
            _fill(existing, stream, order.mode)
    finally:
        if existing >= 0:
            os.close(existing)


def _make_parents(target: str) -> None:
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None


def _open_existing(target: str) -> int:
    """Return a descriptor to write to the file, which needs permission, or -1 if there is none."""
    try:
        return os.open(target, os.O_WRONLY | _OPEN)
    except FileNotFoundError:
        return -1


def _replace(target: str, stream: OrderStream, mode: int | None, existing: int) -> None:
    """Write a new file, and give it the name `target`. `existing`: of the file that has it, or -1.

    `mode`: its permissions, or None for those by the umask.
    """
    temporary = os.path.join(os.path.dirname(target), TEMPORARY + secrets.token_hex(8))
    flags, first_mode = os.O_RDWR | os.O_CREAT | os.O_EXCL, _USUAL if mode is None else _PRIVATE
    try:
        descriptor = os.open(temporary, flags | _OPEN, first_mode)
    except OSError:  # for example a folder that cannot be written to
        if existing < 0:
            raise
        _fill(existing, stream, mode)
        return
    try:
        _fill(descriptor, stream, mode)
        _rename(temporary, target, descriptor, existing)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    finally:
        os.close(descriptor)


def _rename(temporary: str, target: str, descriptor: int, existing: int) -> None:
    try:
        os.replace(temporary, target)
    except OSError as error:
        if error.errno != errno.EBUSY or existing < 0:
            raise
        os.ftruncate(existing, 0)  # it is a mount, which has to stay
        while data := os.pread(descriptor, _PIECE_BYTES, os.lseek(existing, 0, os.SEEK_CUR)):
            _write_all(existing, data)
        os.unlink(temporary)


def _fill(descriptor: int, stream: OrderStream, mode: int | None) -> None:
    os.ftruncate(descriptor, 0)
    for piece in stream.pieces():
        _write_all(descriptor, piece)
    if mode is not None:
        os.fchmod(descriptor, mode)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _absolute(path: str, work_dir: str) -> str:
    """Return `path` from the root, as it was given as far as possible."""
    joined = os.path.join(work_dir, path)
    return os.path.realpath(joined) if ".." in path.split("/") else os.path.normpath(joined)


def _list(path: str, work_dir: str) -> Generator[FileEntry]:
    folder = _absolute(path, work_dir)
    with os.scandir(path) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
            status = entry.stat(follow_symlinks=False)
            is_link = stat.S_ISLNK(status.st_mode)
            if is_link:
                with contextlib.suppress(OSError):  # it leads nowhere
                    status = entry.stat()
            yield _describe(os.path.join(folder, entry.name), status, is_link=is_link)


def _listed(answer: BoxAnswer, stream: OrderStream) -> BoxAnswer:
    """Return the answer with a list, or send it before an empty one if it may be too long."""
    if len(answer.entries or ()) <= _MAX_ENTRIES:
        return answer
    packet = encode_packet(answer)
    for start in range(0, len(packet), _PIECE_BYTES):
        stream.send_chunk(packet[start : start + _PIECE_BYTES])
    return BoxAnswer()


def _describe(path: str, status: os.stat_result, *, is_link: bool) -> FileEntry:
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    return FileEntry(
        os.path.basename(path),
        path,
        kinds.get(stat.S_IFMT(status.st_mode), "other"),
        is_link,
        status.st_size,
        stat.S_IMODE(status.st_mode),
        max(0.0, status.st_mtime),
    )


def _remove(path: str, work_dir: str) -> None:
    """Remove `path`, a link itself, but not the work folder or what it is in."""
    os.lstat(path)
    parent, name = os.path.split(path.rstrip("/"))
    whole = os.path.join(os.path.realpath(parent or "."), name)
    if name in ("", ".", ".."):
        whole = os.path.realpath(path)
    if os.path.join(os.path.realpath(work_dir), "").startswith(os.path.join(whole, "")):
        raise OSError(errno.ENOTSUP, "The work folder has to stay")
    if stat.S_ISDIR(os.lstat(whole).st_mode):
        above, name = os.path.split(whole)
        with SafeFolder.at(above) as folder:
            folder.remove(name)
    else:
        os.unlink(whole)
