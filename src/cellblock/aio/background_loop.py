"""The one background loop on which executors live, and the ways onto it.

An executor can be used from any number of event loops and threads, and from plain synchronous code, because its own work
happens on this loop, but for blocks that are run on their caller's own. There is one for each process, made on first use; a
forked child gets its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_UNREAD = 1024  # items of a stream that wait for their reader; with more, the producer waits


class Engine:
    """A thread that runs one event loop for as long as the process lives."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._answered: list[
            threading.Lock
        ] = []  # of threads whose work is done, and who have yet to be told
        self._thread = threading.Thread(target=self.loop.run_forever, name="cellblock", daemon=True)
        self._thread.start()

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` here and give its result to the caller's loop.

        When the calling task is cancelled, so is `work`; its clean-up is waited for, and only then the
        cancellation goes on up.
        """
        loop = asyncio.get_running_loop()
        if loop is self.loop:
            return await work
        told, cancelled = loop.create_future(), None
        hop = _Hop(self.loop, work, functools.partial(_wake, loop, told))
        while not told.done():
            try:
                await asyncio.shield(told)
            except asyncio.CancelledError as error:
                if cancelled is None:
                    hop.cancel()
                cancelled = error
        if cancelled is not None:
            raise cancelled
        return hop.result()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` here and block this thread until it is done. An interrupt cancels it and waits for its clean-up."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(
                "The synchronous interface cannot be used from inside an executor's own callbacks."
            )
        told = (
            threading.Lock()
        )  # and no future: what that does is several times as much, for each of many threads
        told.acquire()
        hop = _Hop(self.loop, work, functools.partial(self._tell, told))
        try:
            told.acquire()
        except BaseException:  # an interrupt of this thread: nothing else comes out of that
            if not hop.is_over:
                hop.cancel()
                told.acquire()
            raise
        return hop.result()

    def _tell(self, told: threading.Lock) -> None:
        """Have a thread go on, together with all others that can: those who wake up would only wait for this one to rest."""
        if not self._answered:
            self.loop.call_soon(self._tell_all)
        self._answered.append(told)

    def _tell_all(self) -> None:
        answered, self._answered = self._answered, []
        for told in answered:
            told.release()

    async def stream(self, items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """Run the generator `items` here and give what it yields to the caller's loop."""
        stream = _Stream(items)
        try:
            while batch := await self.call(stream.take()):
                for item in batch:
                    yield item
        finally:
            await self.call(stream.close())

    def iterate(self, items: AsyncGenerator[T, None]) -> Generator[T]:
        """Run the generator `items` here and give what it yields to this thread."""
        stream = _Stream(items)
        try:
            while batch := self.wait(stream.take()):
                yield from batch
        finally:
            self.wait(stream.close())


_engine: Engine | None = None
# Two threads that start their first executor at once must get the same engine.
_making = threading.Lock()


def engine() -> Engine:
    """Give this process's engine."""
    return _engine or _make()


def _make() -> Engine:
    global _engine
    with _making:
        if _engine is None:
            _engine = Engine()
        return _engine


def _forget() -> None:
    """In a forked child: the engine's thread is the parent's, and so is who may be making it just now."""
    global _engine, _making
    _engine, _making = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)


def _wake(loop: asyncio.AbstractEventLoop, told: asyncio.Future[None]) -> None:
    with contextlib.suppress(RuntimeError):  # a loop that was closed waits for nothing
        loop.call_soon_threadsafe(lambda: told.done() or told.set_result(None))


class _Hop(Generic[T]):
    """One piece of work on the engine's loop, where `tell` is called when it has ended, its clean-up included."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, T],
        tell: Callable[[], None],
    ) -> None:
        self.is_over = False
        self._loop, self._tell = loop, tell
        self._work: Coroutine[Any, Any, T] | None = work  # until it begins
        self._task: asyncio.Task[None] | None = None
        self._values: list[T] = []  # one, unless it failed
        self._error: BaseException | None = None
        loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        if self._work is not None:
            self._task = self._loop.create_task(self._do(self._work))

    async def _do(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = None
        # Told from within the task: its own end would be known a turn of the loop later.
        try:
            self._values.append(await work)
        except BaseException as error:
            self._error = error
        self._end()

    def _end(self) -> None:
        self.is_over = True
        self._tell()

    def result(self) -> T:
        """Give what came of it, or raise that; once it is over."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # which would hold what holds it
        return self._values[0]

    def cancel(self) -> None:
        """Cancel the work, from any thread."""
        self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if (
            self._work is not None
        ):  # a task that is cancelled before its first step takes none, and tells nobody
            self._work.close()
            self._work = None
            self._error = asyncio.CancelledError()
            self._end()


class _Stream(Generic[T]):
    """A generator that runs ahead of its reader, by a bounded number of items. Used on the engine's loop alone."""

    def __init__(self, items: AsyncGenerator[T, None]) -> None:
        self._items = items
        self._unread: list[T] = []
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def _produce(self) -> None:
        try:
            async with contextlib.aclosing(self._items) as items:
                async for item in items:
                    self._unread.append(item)
                    self._news.set()
                    if len(self._unread) >= _UNREAD:
                        self._room.clear()
                        await self._room.wait()
        finally:
            self._news.set()

    async def take(self) -> list[T]:
        """Give the items that are there, at least one; none at the end. Raises what the generator raised."""
        if self._task is None:
            self._task = asyncio.create_task(self._produce())
        await self._news.wait()
        batch, self._unread = self._unread, []
        self._room.set()
        if not batch:
            await self._task
        elif not self._task.done():
            self._news.clear()
        return batch

    async def close(self) -> None:
        """End the generator, and wait for its clean-up."""
        if self._task is None:
            await self._items.aclose()
        elif not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
