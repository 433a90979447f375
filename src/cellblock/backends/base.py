"""Place and Connection: start a cell server somewhere, speak with it, end it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from typing import Any

from ..cancellation import Token, heeding
from ..errors import BackendError, BackendLost, CellblockError, PackageError, WorkspaceError
from ..runtime import protocol
from .pending_run import Run
from .transport import PACKAGE, Link, start_process

__all__ = ["PACKAGE", "Connection", "Place", "open_server", "start_server"]

_UNREAD_FRAMES = 512  # frames of one run that wait for their reader, at which nothing more is read from the server
_PATIENCE = 60.0  # seconds that a server may take to start: far more than a loaded machine needs
_ASK, _ANSWER = (
    3.0,
    10.0,
)  # seconds between two questions whether the server lives, and that its answer may take
_PIECE = 1 << 20  # bytes of one piece of a value
_LAST = (protocol.ENDED, protocol.ANSWER, protocol.FAILED)


class Place(ABC):
    """Where a cell server runs."""

    @abstractmethod
    async def open(self) -> Connection:
        """Start a cell server. Raises `BackendError` when that cannot be done, with what to do about it.

        Raises `PackageError` when a module that is to be imported in advance cannot be.
        """


class Connection:
    """An open place. It is opened and closed on the engine's loop; `run` says where else it can be used."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._loop = asyncio.get_running_loop()
        self._decoder = protocol.Decoder()
        self._runs: dict[int, Run] = {}
        self._loops = set[
            asyncio.AbstractEventLoop
        ]()  # of the runs that there are, and perhaps others
        self._numbers = itertools.count(1)
        self._entering = threading.Lock()
        self._paused = False
        self._heard = time.monotonic()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._lost: str | None = None
        link.begin(self._on_data, self._on_end)
        _open_connections.add(self)

    @property
    def pid(self) -> int:
        """The server's process, when that is one of this machine; else 0."""
        return self.link.pid

    @property
    def serves_all_loops(self) -> bool:
        """Whether runs can be asked for on any loop; else on the engine's alone."""
        return self.link.serves_all_loops

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return len(self._runs)

    @property
    def is_open(self) -> bool:
        """Whether runs can be asked for: not ended, and not inherited by a forked child."""
        return self._lost is None

    async def open(self, spec: dict[str, Any]) -> None:
        """Tell the server what to be and wait until it is; close when that does not work. Raises as `Place.open` does."""
        self._send(protocol.encode_json(protocol.OPEN, 0, spec))
        try:
            await asyncio.wait_for(asyncio.shield(self._opened), _PATIENCE)
        except BaseException as error:
            words = self._last_words()
            await self.close()
            if isinstance(error, TimeoutError):
                raise BackendError(
                    f"The cell server did not start within {_PATIENCE:.0f} s. {words}"
                ) from error
            raise

    async def ask(
        self, request: dict[str, Any], value: bytes = b"", token: Token | None = None
    ) -> tuple[dict[str, Any], bytes]:
        """Have something done by or with a live session; give its answer, and the value that came with that.

        Raises as `run` does.
        """
        answer, pieces = dict[str, Any](), bytearray()
        async with contextlib.aclosing(self.run(request, token, value=value)) as frames:
            async for frame in frames:
                if frame.kind == protocol.ANSWER:
                    answer = frame.json()
                elif frame.kind == protocol.PIECE:
                    pieces += frame.payload
        return answer, bytes(pieces)

    async def run(
        self,
        request: dict[str, Any],
        token: Token | None = None,
        *,
        value: bytes = b"",
        on_input: Callable[[dict[str, Any]], Coroutine[Any, Any, str]] | None = None,
    ) -> AsyncGenerator[protocol.Frame, None]:
        """Run one block: give its frames up to the one of kind ENDED, after which nothing of it lives.

        A request with ``op`` is for a live session; `value` goes with it, and `on_input` answers what its code asks for.
        When the generator is closed early, or its task cancelled, the run is cancelled and its end waited for.
        Raises `BackendLost` when the server ends, `BackendError` when no cell could be made, `WorkspaceError` when a file of the
        block could not.
        """
        number = next(self._numbers)
        order = protocol.encode_json(
            protocol.ASK if "op" in request else protocol.RUN, number, request
        )
        run = self._new_run(number)
        try:
            self._send(order)
            for start in range(0, len(value), _PIECE):
                self._send(protocol.encode(protocol.DATA, number, value[start : start + _PIECE]))
            with heeding(
                token, self._loop, lambda: self._send(protocol.encode(protocol.CANCEL, number))
            ):
                while not run.over:
                    for frame in await self._frames(run):
                        if frame.kind == protocol.INPUT and on_input is not None:
                            await self._answer(run, number, on_input(frame.json()))
                        else:
                            yield frame
        finally:
            if not run.over and self.is_open:
                self._send(protocol.encode(protocol.CANCEL, number))
                run.drop = True
                self._resume()
                await _surely(run.end())
            self._runs.pop(number, None)

    def _new_run(self, number: int) -> Run:
        """Give a run that is told of all that comes for it, and of the server's end."""
        self.check()
        run = Run()
        self._loops.add(run.loop)
        if len(self._loops) > 1:
            self._give_up_orphans(run.loop)
        with self._entering:  # of two that begin at once one must see the other, or both would hear on their own loops
            self._runs[number] = run
            if self.serves_all_loops and self.link.loop is not run.loop and not self._paused:
                self._listen(run.loop)
        try:
            self.check()  # again: if the server ended meanwhile, on another loop, nobody has told this run
        except BackendLost:
            del self._runs[number]
            raise
        return run

    def _give_up_orphans(self, present: asyncio.AbstractEventLoop) -> None:
        """End the runs of loops that were closed, with unfinished tasks in them: nobody else can."""
        self._loops = {present, *(run.loop for run in list(self._runs.values()))}
        for number, run in list(self._runs.items()):
            if run.loop.is_closed():
                self._send(protocol.encode(protocol.CANCEL, number))
                self._runs.pop(number, None)

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hear on `loop`, while all runs are of that one; else on the engine's, which goes on when others end."""
        is_alone = len(self._runs) == 1
        if not (is_alone and self.link.listen(loop)) and self.link.loop is not self._loop:
            self._on_engine(self.link.listen, self._loop)

    def _on_engine(self, step: Callable[..., object], *arguments: object) -> None:
        if asyncio.get_running_loop() is self._loop:
            step(*arguments)
        else:
            self._loop.call_soon_threadsafe(step, *arguments)

    async def _answer(self, run: Run, number: int, line: Coroutine[Any, Any, str]) -> None:
        """Send what the code asked for, unless its run ends first."""
        asked, ended = asyncio.ensure_future(line), asyncio.ensure_future(run.end().wait())
        try:
            await asyncio.wait({asked, ended}, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                self._send(
                    protocol.encode(protocol.DATA, number, asked.result().encode(errors="replace"))
                )
        finally:
            asked.cancel()
            ended.cancel()

    async def _frames(self, run: Run) -> list[protocol.Frame]:
        while not run.frames and self._lost is None:
            await run.wait()
            self._resume()
        frames = list[protocol.Frame]()
        while run.frames:  # to which another thread may add
            frames.append(run.frames.popleft())
        self._resume()
        for frame in frames:
            if frame.kind == protocol.FAILED:
                run.over = True
                raise _failure(frame.json())
            run.over = run.over or frame.kind in _LAST
        if not frames:
            run.over = True
            raise BackendLost(self._lost or "The cell server ended.")
        return frames

    def check(self) -> None:
        """Raise `BackendLost` when the server has ended, or belongs to another process."""
        if self._lost is not None:
            raise BackendLost(self._lost)

    async def watch(self) -> None:
        """As long as it is open: when the server does not answer while something runs, give it up as lost."""
        while self.is_open:
            await asyncio.sleep(_ASK)
            if not self._runs or self._paused:
                continue
            asked = time.monotonic()
            self._send(protocol.encode(protocol.PING))
            await asyncio.sleep(_ANSWER)
            if self._heard < asked and not self._paused:
                self._lose(f"The cell server did not answer for {_ANSWER:.0f} s.")

    # the stream

    def _send(self, data: bytes) -> None:
        if self._lost is None:
            self.link.send(data)

    def _on_end(self) -> None:
        self._lose(f"The cell server ended unexpectedly. {self._last_words()}")

    def _on_data(self, data: bytes) -> None:
        self._heard = time.monotonic()
        try:
            for frame in self._decoder.feed(data):
                if frame.run:
                    self._deliver_to_run(frame)
                else:
                    self._deliver(frame)
        except protocol.WireError as error:
            self._lose(f"The cell server does not speak our protocol: {error}")

    def _deliver(self, frame: protocol.Frame) -> None:
        if frame.kind == protocol.READY:
            self._opened.set_result(None)
        elif frame.kind == protocol.FAILED:
            news = frame.json()
            self._lose(
                f"The cell server failed: {news.get('error')}.",
                _not_imported(news) if "module" in news else None,
            )

    def _deliver_to_run(self, frame: protocol.Frame) -> None:
        run = self._runs.get(frame.run)
        if run is None:
            return
        if not run.drop:
            run.frames.append(frame)
            # Who runs a block on a loop of his own collects all of it anyway, and must not hold up others while that is busy.
            if len(run.frames) >= _UNREAD_FRAMES and run.loop is self._loop and not self._paused:
                self._paused = True
                self.link.pause()
        run.tell(has_ended=frame.kind in _LAST)  # after that, since who reads resumes

    def _resume(self) -> None:
        if self._paused and self._lost is None:
            self._paused = False
            self._on_engine(self.link.resume)  # what was too much is a run's of that loop

    def _lose(self, why: str, error: CellblockError | None = None) -> None:
        """Take the end of the server to everybody who waits for it; `error` to who waits for its start."""
        if self._lost is not None:
            return
        self._lost = why
        self.link.let_go()
        if not self._opened.done():
            self._opened.set_exception(error or BackendError(why))
        for run in list(self._runs.values()):
            run.tell(has_ended=True)

    def _last_words(self) -> str:
        text = self.link.last_words()
        return f"It said: {text}" if text else ""

    # the end

    async def close(self, *, keep: Sequence[str] = ()) -> None:
        """End the server and all its cells, and wait until they are gone.

        `keep` names paths that the server was to delete and must not.
        """
        _open_connections.discard(self)
        if keep:
            self._send(protocol.encode_json(protocol.KEEP, 0, {"paths": list(keep)}))
        self._lose("The executor, or the server of its session, was stopped.")
        if self._opened.done():
            self._opened.exception()  # looked at, so that nobody reports it as forgotten
        await self.link.close()

    def forget(self) -> None:
        """In a forked child: let go of a stream that is the parent's."""
        self._lost = (
            "This executor was started in another process: use one that is made in this one."
        )
        self.link.forget()


def _not_imported(news: dict[str, Any]) -> PackageError:
    """Give the error for a module of `preload`."""
    return PackageError(
        f"preload names {news['module']!r}, which the Python that runs the blocks cannot import. It says:\n{news['error']}\n"
        "Add what it needs to packages, or take it out of preload."
    )


def _failure(news: dict[str, Any]) -> CellblockError:
    """Give the error that the server tells of."""
    if "file" in news:
        return WorkspaceError(f"{news['file']} cannot be written: {news['error']}.")
    return BackendError(f"The code could not be run: {news.get('error')}.")


async def _surely(event: asyncio.Event) -> None:
    """Wait for `event`, whoever cancels; the cancellation that brought us here goes on afterwards."""
    while not event.is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await event.wait()


_open_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def _forget_all() -> None:
    # A copy of the control stream in a child would keep the server alive after its owner's death.
    for connection in list(_open_connections):
        connection.forget()
    _open_connections.clear()


os.register_at_fork(after_in_child=_forget_all)


async def start_server(
    text: str,
    spec: dict[str, Any],
    *,
    python: str | None = None,
    environment: Mapping[str, str] | None = None,
    inherited: Sequence[int] = (),
) -> Connection:
    """Start a cell server as a process of this machine and open it. `text` is its program, out of `cell.boot`.

    `environment` None means this process's own; the server gets the descriptors `inherited`.
    """
    return await open_server(start_process(text, python, environment, inherited), spec)


async def open_server(link: Link, spec: dict[str, Any]) -> Connection:
    """Speak to the cell server behind `link` and open it; end it when that does not work. Raises `BackendError`."""
    connection = Connection(link)
    await connection.open(spec)
    return connection
