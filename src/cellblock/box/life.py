"""BoxLife: start a box once, send it orders, and end it when nobody uses it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import weakref
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator
from dataclasses import dataclass

from ..aio.background_loop import background_loop
from ..aio.shielded import run_to_end
from ..backends.connection import Connection
from ..errors import BackendError, BackendLost, BoxGone, ExecutorStopped, UserUnsupported
from ..executors.session.base import SessionExecutor
from ..runtime import protocol
from ..runtime.box_orders import BoxAnswer, BoxOrder, FileEntry, ListFolder, ReadFile
from ..runtime.packets import decode_fields, decode_packet
from ..sandbox.images.root_file_system import RootFileSystem
from .root_defaults import with_root_defaults

_CLOSED = "This box was closed."
_MAX_LIST_BYTES = 1 << 27  # of the longest list of a folder: 128 MiB


@dataclass(frozen=True)
class BoxLink:
    """The connection of a box that is started, the number of its session, and its own root."""

    connection: Connection
    session: int
    root: RootFileSystem | None

    def frames(
        self, order: BoxOrder, data: AsyncIterable[bytes] | None = None
    ) -> AsyncGenerator[protocol.Frame, None]:
        """Carry out an order. See `Connection.run_box`."""
        if self.root is not None:
            order = with_root_defaults(order, self.root)
        return self.connection.run_box(order._replace(session=self.session), data=data)


class BoxLife:
    """What keeps a box alive. It belongs to the background loop.

    gone      why the box cannot be used any more; "" if it can
    advice    what a user can do then
    on_gone   called with the reason when that happens
    """

    advice = "Create a new one."

    def __init__(self, session: SessionExecutor, idle_seconds: float | None) -> None:
        self.session = session
        self.gone = ""
        self.on_gone: Callable[[str], None] = lambda reason: None
        self._idle_seconds = idle_seconds
        self._is_started = False
        self._use_count = 0
        self._timer: asyncio.TimerHandle | None = None

    def copy_for(self, session: SessionExecutor) -> BoxLife:
        """Return the life of a branch, which is started."""
        branch = BoxLife(session, self._idle_seconds)
        branch._is_started = True
        branch._set_timer()
        return branch

    async def start(self) -> None:
        """Start the box, unless it is started. Raise `BoxGone` after its end."""
        self._check()
        if not self._is_started:
            await self.session.start()
            self._is_started = True
            self._set_timer()
            self._check()

    def _check(self) -> None:
        if self.gone:
            raise BoxGone(f"{self.gone} {self.advice}")

    async def close(self, reason: str = _CLOSED) -> None:
        """End the box and all that runs in it."""
        self._set_gone(reason)
        if self._timer is not None:
            self._timer.cancel()
        # As after a `with` block, the session does not start again on its next use.
        await run_to_end(self.session.__aexit__(None, None, None))

    def _set_gone(self, reason: str) -> None:
        if not self.gone:
            self.gone = reason
            self.on_gone(reason)

    @property
    def is_gone(self) -> bool:
        """Whether the box cannot be used any more, even if no call has found that out yet."""
        connection = self.session.place.connection
        return bool(self.gone) or (connection is not None and connection.has_lost_server())

    @property
    def is_started(self) -> bool:
        """Whether it was started."""
        return self._is_started

    @contextlib.asynccontextmanager
    async def use(self, *, is_counted: bool = True) -> AsyncGenerator[BoxLink]:
        """Start the box if necessary. While it is in use, it is not idle, if that `is_counted`."""
        await self.start()
        self._use_count += is_counted
        self._set_timer()
        try:
            with self._report_loss():
                place = self.session.place
                place.watch_server()
                yield BoxLink(place.require_connection(), place.session.number, place.root)
        finally:
            self._use_count -= is_counted
            self._set_timer()

    @contextlib.contextmanager
    def _report_loss(self) -> Generator[None]:
        try:
            yield
        except BoxGone:
            raise
        except (BackendLost, ExecutorStopped) as error:
            self._set_gone(f"The box is gone: {error}")
            raise BoxGone(f"{self.gone} {self.advice}") from error

    async def ask(
        self, order: BoxOrder, data: AsyncIterable[bytes] | None = None, *, path: str = ""
    ) -> tuple[BoxAnswer, bytes]:
        """Carry out an order. Return the answer and the bytes that came before it.

        Raise `OSError`, with `path` as the name of the file, or `UserUnsupported`.
        """
        answer, chunks = BoxAnswer(), bytearray()
        limit = order.limit_bytes if isinstance(order, ReadFile) else _MAX_LIST_BYTES
        async with self.use() as link, contextlib.aclosing(link.frames(order, data)) as frames:
            async for frame in frames:
                if frame.kind == protocol.VALUE_CHUNK:
                    chunks += frame.payload
                    check_room(len(chunks), limit, path)
                elif frame.kind == protocol.BOX_REPLY:
                    answer = decode_fields(frame, BoxAnswer)
        check_box_answer(answer, path)
        if chunks and isinstance(order, ListFolder):
            answer = _decode_list(chunks, path)
        return answer, bytes(chunks)

    def _set_timer(self) -> None:
        """Let the box end later, if it is not used until then."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._idle_seconds is not None and not self._use_count and not self.gone:
            loop = asyncio.get_running_loop()
            close = weakref.WeakMethod(self._close_idle)
            self._timer = loop.call_later(self._idle_seconds, _call_if_alive, close)

    def _close_idle(self) -> None:
        reason = f"This box was idle for {self._idle_seconds:g} s and has closed itself."
        background_loop().keep(asyncio.ensure_future(self.close(reason)))


def _call_if_alive(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    if (call := method()) is not None:
        call()


def check_box_answer(answer: BoxAnswer, path: str = "") -> None:
    """Raise what `answer` reports: `OSError` about `path`, or `UserUnsupported`."""
    if answer.errno is None:
        return
    if answer.errno == errno.EPERM and answer.path is None:
        raise UserUnsupported(answer.error or "The user cannot be had.")
    number = answer.errno if answer.errno in errno.errorcode else errno.EIO
    text = (answer.error or os.strerror(number)).removesuffix(f": {answer.path!r}")
    raise OSError(number, text, path or answer.path)


def check_room(received: int, limit: int | None, path: str) -> None:
    """Raise `OSError` if more than `limit` bytes have arrived: the box may not count."""
    if limit is not None and received > limit:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)


def _decode_list(packet: bytearray, path: str) -> BoxAnswer:
    try:
        return decode_packet(bytes(packet), BoxAnswer)
    except protocol.ProtocolError as error:
        raise OSError(errno.EIO, "The box sent an invalid list", path) from error


def single_entry(answer: BoxAnswer) -> FileEntry:
    """Return the entry of an answer about one file."""
    if not answer.entries:
        raise BackendError("The answer of the box does not describe the file.")
    return answer.entries[0]
