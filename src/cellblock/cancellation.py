"""CancellationToken, and how a call reacts to one."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio


class Token(Protocol):
    """The methods that executors need. `CancellationToken` and AutoGen's token have them."""

    def is_cancelled(self) -> bool:
        """Return True if the token was cancelled."""
        ...

    def add_callback(self, callback: Callable[[], None], /) -> object:
        """Run `callback` on cancellation; immediately if the token is already cancelled."""
        ...


class _SupportsCancel(Protocol):
    def cancel(self) -> Any: ...


FutureT = TypeVar("FutureT", bound=_SupportsCancel)

# In seconds. If nobody can cancel a second time, the run is ended after this time.
ABANDONED_GRACE = 5.0


class CancellationToken:
    """Cancel the calls that received this token. Every method can be called from any thread."""

    def __init__(self) -> None:
        self._cancelled = False
        # Changes the other fields together, so that no callback is lost or runs twice.
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
        self._repeat_callbacks: list[Callable[[], None]] = []

    def cancel(self) -> None:
        """Cancel and run every callback once in this thread.

        A session's block may end a call of native code first. A further call of `cancel` kills it.
        """
        with self._lock:
            if self._cancelled:
                callbacks = list(self._repeat_callbacks)
            else:
                self._cancelled = True
                callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def is_cancelled(self) -> bool:
        """Return True if `cancel` was called."""
        return self._cancelled

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Run `callback` on cancellation; immediately if the token is already cancelled."""
        with self._lock:
            if not self._cancelled:
                self._callbacks.append(callback)
                return
        callback()

    def add_repeat_callback(self, callback: Callable[[], None]) -> None:
        """Run `callback` whenever the token is cancelled after the first time."""
        with self._lock:
            self._repeat_callbacks.append(callback)

    def remove_callback(self, callback: Callable[[], None]) -> None:
        """Remove `callback`, so that a long-lived token does not keep finished calls alive.

        Do nothing if `callback` was not added or has run.
        """
        with self._lock:
            for callbacks in (self._callbacks, self._repeat_callbacks):
                if callback in callbacks:
                    callbacks.remove(callback)

    def link_future(self, future: FutureT) -> FutureT:
        """Cancel `future` when this token is cancelled, and return `future`."""
        self.add_callback(lambda: _cancel(future))
        return future


def _cancel(future: _SupportsCancel) -> None:
    future.cancel()


@contextlib.contextmanager
def on_cancel(
    token: Token | None,
    loop: asyncio.AbstractEventLoop,
    callback: Callable[[], object],
    *,
    repeats: bool = False,
) -> Generator[None]:
    """While the context is open, call `callback` on `loop` if `token` is cancelled in any thread.

    With `repeats`, call it each time that one of our tokens is cancelled again, too.
    AutoGen's token cannot remove a callback. A callback that stays behind there holds no reference
    to the call and does nothing.
    """
    active = [(loop, callback)]

    def run_callback() -> None:
        for _, active_callback in active:
            active_callback()

    def schedule() -> None:
        for active_loop, _ in active:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                active_loop.call_soon_threadsafe(run_callback)

    if token is not None:
        token.add_callback(schedule)
    if repeats and (add_repeat_callback := getattr(token, "add_repeat_callback", None)):
        add_repeat_callback(schedule)
    try:
        yield
    finally:
        active.clear()
        if remove_callback := getattr(token, "remove_callback", None):
            remove_callback(schedule)
