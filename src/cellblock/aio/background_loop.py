"""The background event loop on which executors do their work, and the ways to call it.

An executor can be used from any event loop or thread, and from synchronous code, because its own
work runs on this loop. Each process has one background loop, created on first use. A forked child
creates its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, ParamSpec, TypeVar

from .running_loop import running_loop
from .shielded import run_to_end

P = ParamSpec("P")
T = TypeVar("T")

_MAX_UNREAD = 1024  # items of a stream that may be unread; the producer waits when there are more


class LoopEnded(RuntimeError):
    """Python is exiting, and the thread of the background loop has ended."""


class _Workers(ThreadPoolExecutor):
    """The threads for blocking functions. During the exit of Python, run them in the caller.

    `atexit` functions can then still stop executors, although no thread can be started any more.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if threading.main_thread().is_alive():
            try:
                return super().submit(fn, *args, **kwargs)
            except RuntimeError as error:
                if "cannot schedule new futures" not in str(error):
                    raise
        done = Future[T]()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as error:
            done.set_exception(error)
        return done


def _check_running(work: Coroutine[Any, Any, Any]) -> None:
    """Close `work` and raise `LoopEnded` if no daemon thread runs any more."""
    if sys.is_finalizing():
        work.close()
        raise LoopEnded("Python is exiting: executors can no longer be used.")


class BackgroundLoop:
    """A thread that runs one event loop for as long as the process lives."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(_Workers(thread_name_prefix="cellblock"))
        self._finished: list[threading.Lock] = []  # locks of threads that can continue
        self._callers: dict[_CrossLoopCall[Any], asyncio.AbstractEventLoop] = {}
        # The thread keeps these alive to the very end, even if nothing else does.
        self._kept = set[asyncio.Future[None]]()
        self._thread = threading.Thread(target=self._run_forever, name="cellblock", daemon=True)
        self._thread.start()

    def _run_forever(self) -> None:
        self.loop.run_forever()

    def keep(self, work: asyncio.Future[None]) -> None:
        """Keep a task of this loop that nobody waits for until it is done.

        If Python exits before that, the task ends without a word.
        """
        self._kept.add(work)
        work.add_done_callback(self._kept.discard)

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the background loop and return its result. Raise `LoopEnded`.

        If the calling task is cancelled, cancel `work`, wait for its clean-up, and then raise
        `CancelledError`. If the caller's loop is closed meanwhile, the next call cancels `work`.
        """
        try:
            loop = running_loop()
        except RuntimeError:
            work.close()
            raise
        if loop is self.loop:
            return await work
        _check_running(work)
        for other, caller in list(self._callers.items()):
            if caller.is_closed():
                other.cancel()
        done, cancelled = loop.create_future(), None
        call = _CrossLoopCall(self.loop, work, functools.partial(_resolve, loop, done))
        self._callers[call] = loop
        call.start()
        try:
            while not done.done():
                try:
                    await asyncio.shield(done)
                except asyncio.CancelledError as error:
                    if cancelled is None:
                        call.cancel()
                    cancelled = error
        finally:
            del self._callers[call]
            if not call.is_done:  # the loop was closed, and the task is collected
                call.cancel()
        if cancelled is not None:
            raise cancelled
        return call.result()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the background loop and block the calling thread until it is done.

        Raise `LoopEnded`. An interrupt (Ctrl-C) cancels `work` and waits for its clean-up.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(
                "The synchronous interface cannot be used from inside an executor's own callbacks."
            )
        _check_running(work)
        # A lock and not a `concurrent.futures.Future`, which costs several times as much per call.
        waiter = threading.Lock()
        waiter.acquire()
        call = _CrossLoopCall(self.loop, work, functools.partial(self._release_soon, waiter))
        try:
            call.start()  # an interrupt may come as soon as `work` begins
            waiter.acquire()
        except BaseException:  # only a signal handler of this thread can raise here
            if not call.is_done:
                call.cancel()
                waiter.acquire()
            raise
        return call.result()

    def _release_soon(self, waiter: threading.Lock) -> None:
        """Let a thread continue after all callbacks that are ready now.

        A thread that wakes earlier would only compete with this one for the interpreter lock.
        """
        if not self._finished:
            self.loop.call_soon(self._release_finished)
        self._finished.append(waiter)

    def _release_finished(self) -> None:
        finished, self._finished = self._finished, []
        for waiter in finished:
            waiter.release()

    async def stream(self, items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """Run the generator `items` on the background loop and yield its items on the caller's."""
        running_loop()  # raises if there is none
        read_ahead = _ReadAhead(items, self.keep)
        try:
            while batch := await self.call(read_ahead.read_batch()):
                for item in batch:
                    yield item
        finally:
            with contextlib.suppress(LoopEnded):  # a further cancellation must not prevent it
                await run_to_end(self.call(read_ahead.close()))

    def iterate(self, items: AsyncGenerator[T, None]) -> Generator[T]:
        """Run the generator `items` on the background loop and yield its items in this thread."""
        read_ahead = _ReadAhead(items, self.keep)
        try:
            while batch := self.run(read_ahead.read_batch()):
                yield from batch
        finally:
            with contextlib.suppress(LoopEnded):
                self.run(read_ahead.close())


_background_loop: BackgroundLoop | None = None
# Two threads that start their first executor at the same time must get the same loop.
_creation_lock = threading.Lock()


def background_loop() -> BackgroundLoop:
    """Return the background loop of this process. Create it on the first call."""
    return _background_loop or _create()


def _create() -> BackgroundLoop:
    global _background_loop
    with _creation_lock:
        if _background_loop is None:
            _background_loop = BackgroundLoop()
        return _background_loop


def _reset_in_child() -> None:
    """Drop the parent's loop, and the lock, which a thread of the parent may have held."""
    global _background_loop, _creation_lock
    _background_loop, _creation_lock = None, threading.Lock()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_reset_in_child)


def _resolve(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop was closed
        loop.call_soon_threadsafe(lambda: future.done() or future.set_result(None))


class _CrossLoopCall(Generic[T]):
    """A coroutine on the background loop. Calls `on_done` after the coroutine and its clean-up."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, T],
        on_done: Callable[[], None],
    ) -> None:
        self.is_done = False
        self._loop, self._on_done = loop, on_done
        self._work: Coroutine[Any, Any, T] | None = work  # None once it has started
        self._task: asyncio.Task[None] | None = None
        self._values: list[T] = []  # one value, unless the coroutine failed
        self._error: BaseException | None = None

    def start(self) -> None:
        """Start the coroutine soon."""
        self._loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        if self._work is not None:
            self._task = self._loop.create_task(self._run(self._work))

    async def _run(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = None
        # Call `on_done` from inside the task: a done callback runs one loop iteration later.
        try:
            self._values.append(await work)
        except BaseException as error:
            self._error = error
        self._finish()

    def _finish(self) -> None:
        self.is_done = True
        self._on_done()

    def result(self) -> T:
        """Return the result or raise the error of the coroutine, which must be done."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # breaks the reference cycle through the traceback
        return self._values[0]

    def cancel(self) -> None:
        """Cancel the coroutine. Safe to call from any thread."""
        self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._work is not None:
            # A task that is cancelled before its first step never runs `_run`, so finish here.
            self._work.close()
            self._work = None
            self._error = asyncio.CancelledError()
            self._finish()


class _ReadAhead(Generic[T]):
    """A generator that runs ahead of its reader by a bounded number of items.

    Used only on the background loop. `keep` gets its task.
    """

    def __init__(
        self, items: AsyncGenerator[T, None], keep: Callable[[asyncio.Future[None]], None]
    ) -> None:
        self._items, self._keep = items, keep
        self._unread: list[T] = []
        self._is_readable = asyncio.Event()
        self._has_room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def _produce(self) -> None:
        try:
            async with contextlib.aclosing(self._items) as items:
                async for item in items:
                    self._unread.append(item)
                    self._is_readable.set()
                    if len(self._unread) >= _MAX_UNREAD:
                        self._has_room.clear()
                        await self._has_room.wait()
        finally:
            self._is_readable.set()

    async def read_batch(self) -> list[T]:
        """Return all unread items, at least one; an empty list at the end.

        Raise what the generator raised.
        """
        if self._task is None:
            self._task = asyncio.create_task(self._produce())
            self._keep(self._task)
        await self._is_readable.wait()
        batch, self._unread = self._unread, []
        self._has_room.set()
        if not batch:
            await self._task
        elif not self._task.done():
            self._is_readable.clear()
        return batch

    async def close(self) -> None:
        """Close the generator and wait for its clean-up."""
        if self._task is None:
            await self._items.aclose()
        elif not self._task.done():
            self._task.cancel()
            await run_to_end(asyncio.wait([self._task]))
