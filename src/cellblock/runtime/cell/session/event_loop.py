"""The event loop of a session's blocks, which run in the main thread with a loop set as running.

`asyncio.create_task` and `aiohttp.ClientSession()` work at the top level of a block, because
`asyncio.get_running_loop()` returns this loop there, as in IPython's kernel. Unlike there, it does
not really run while a block is at its top level. So `asyncio.run` and `run_until_complete` work
too: asyncio asks the functions that are replaced here whether a loop runs.

The loop really runs while a block awaits, and for a moment before and after each block. Between
blocks its tasks stand still: nothing runs unseen, and copies of the session are exact. A copy has
the tasks as well, after `renew`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Coroutine
from typing import Any

_MAX_ROUNDS = 100  # of a loop before and after a block
_REPLACED = ("_get_running_loop", "_set_running_loop", "set_event_loop")
_getpid, _get_ident = os.getpid, threading.get_ident  # user code may replace them


class SessionLoop(asyncio.SelectorEventLoop):
    """An event loop that opens its descriptors when it is first used: most sessions use none."""

    _thread_id: int | None = None  # the thread that runs it

    def __init__(self) -> None:
        """Do nothing: the first use of an attribute that is missing initializes the loop."""

    def __getattr__(self, name: str) -> Any:
        if not _is_unused(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        set_before = vars(self).copy()  # such as its handler of exceptions
        super().__init__()
        vars(self).update(set_before)
        return getattr(self, name)

    def __del__(self) -> None:
        if not _is_unused(self):
            super().__del__()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]

    def run_until_complete(self, future: Any) -> Any:
        """Run until `future` is done. Cancel it at an interrupt: it must not continue later."""
        future = asyncio.ensure_future(future, loop=self)
        try:
            return super().run_until_complete(future)
        except KeyboardInterrupt:
            if not future.cancel() and not future.cancelled():
                future.exception()  # so that Python does not report that nothing retrieved it
            raise


class BlockLoop:
    """The loop that blocks see as running: the session's own, or one that a block has set."""

    def __init__(self) -> None:
        events: Any = asyncio.events
        self._get_running, self._set_running, self._set_default = (
            getattr(events, name) for name in _REPLACED
        )
        replacements = (self._really_running_loop, self._mark_running, self._set_event_loop)
        for name, function in zip(_REPLACED, replacements, strict=True):
            for module in (asyncio, events):
                setattr(module, name, function)
        self._thread = (0, 0)  # the process and the thread that run blocks
        self._own = SessionLoop()
        self._chosen: asyncio.AbstractEventLoop | None = None  # by a block

    @property
    def _current(self) -> Any:
        return self._chosen or self._own

    def start(self) -> None:
        """Set the loop as running from now on, in this process and thread."""
        self._thread = _getpid(), _get_ident()
        self._set_event_loop(self._chosen)

    def renew(self) -> None:
        """In a fork that becomes the session: separate the loop from that of the parent."""
        try:
            if not (_is_unused(loop := self._current) or loop.is_closed()):
                _separate(loop)
            self.start()
        except Exception as error:
            self._replace(error)

    def turn(self) -> None:
        """Let the tasks continue that need not wait. Replace a closed loop.

        Raise `KeyboardInterrupt` or `SystemExit` if a task raises it.
        """
        if _is_unused(loop := self._current):
            return
        if loop.is_closed():
            self._replace(None)
            return
        try:
            for _ in range(_MAX_ROUNDS):
                _run_once(loop)
                if not getattr(loop, "_ready", None):
                    return
        except Exception as error:  # user code may have closed its descriptors
            self._replace(error)

    def _replace(self, error: Exception | None) -> None:
        """Go on with a loop that works: the session's own, or a new one."""
        if error is not None:
            lost = ", ".join(self.pending_tasks())
            why = f"{type(error).__name__}: {error}"
            sys.stderr.write(f"The event loop was replaced because it failed ({why}).")
            sys.stderr.write(f" Lost with it: {lost}.\n" if lost else "\n")
        if self._current is self._own:
            self._own = SessionLoop()
        self._set_event_loop(None)

    def run_block(self, block: Coroutine[Any, Any, Any]) -> Any:
        """Run a block that awaits. An interrupt cancels what it waits for."""
        loop = self._current
        task = loop.create_task(block)
        try:
            return loop.run_until_complete(task)
        except BaseException as error:
            if task.done():
                raise
            task.cancel()  # it must not continue in a later block
            result = loop.run_until_complete(task)
            if isinstance(error, KeyboardInterrupt):
                return result
            raise

    def pending_tasks(self) -> list[str]:
        """Describe the tasks that are not done."""
        if _is_unused(loop := self._current) or loop.is_closed():
            return []
        return [f"the asyncio task {task.get_name()!r}" for task in asyncio.all_tasks(loop)]

    # what asyncio calls

    def _in_blocks_thread(self) -> bool:
        return self._thread == (_getpid(), _get_ident())

    def _really_running_loop(self) -> asyncio.AbstractEventLoop | None:
        """Replace `asyncio._get_running_loop`, by which asyncio refuses to run loops in loops."""
        loop = self._get_running()
        return loop if loop is None or loop.is_running() else None

    def _mark_running(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Replace `asyncio._set_running_loop`. The end of a loop leaves that of the block."""
        self._set_running(self._current if loop is None and self._in_blocks_thread() else loop)

    def _set_event_loop(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Replace `asyncio.set_event_loop`. A block's choice is also its running loop."""
        if not self._in_blocks_thread():
            self._set_default(loop)
            return
        self._set_default(loop or self._own)
        self._chosen = loop if loop is not self._own else None
        if self._really_running_loop() is None:
            self._set_running(self._current)


def _is_unused(loop: object) -> bool:
    return isinstance(loop, SessionLoop) and "_closed" not in vars(loop)


def _run_once(loop: Any) -> None:
    handle = loop.call_soon(loop.stop)
    try:
        loop.run_forever()
    finally:
        handle.cancel()


def _separate(loop: Any) -> None:
    """In a fork, give `loop` a new selector and pipe. Those of the parent stay the parent's."""
    if not isinstance(loop, asyncio.SelectorEventLoop):
        return  # of another library, which may not survive a fork
    inner: Any = loop
    shared, ends = inner._selector, (inner._ssock, inner._csock)
    keys = [key for key in shared.get_map().values() if key.fd != ends[0].fileno()]
    inner._selector = type(shared)()
    for key in keys:
        with contextlib.suppress(OSError, ValueError, KeyError):  # closed in the meantime
            inner._selector.register(key.fileobj, key.events, key.data)
    shared.close()
    for end in ends:
        end.close()
    inner._internal_fds -= 1
    inner._make_self_pipe()
    if inner._signal_handlers:
        signal.set_wakeup_fd(inner._csock.fileno())
