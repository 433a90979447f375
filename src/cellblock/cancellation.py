"""CancellationToken: one switch, thrown once, from any thread; and how a call heeds it, or another package's."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio


class Token(Protocol):
    """What executors ask of a token: ours has it, and so has AutoGen's."""

    def is_cancelled(self) -> bool:
        """Tell whether it was cancelled."""
        ...

    def add_callback(self, callback: Callable[[], None], /) -> object:
        """Have `callback` run on cancel; at once when that has happened already."""
        ...


class _Cancellable(Protocol):
    def cancel(self) -> Any: ...


FutureT = TypeVar("FutureT", bound=_Cancellable)


class CancellationToken:
    """Cancel the calls that were given this token. Safe to use from any thread."""

    def __init__(self) -> None:
        self._cancelled = False
        # Keeps "cancelled" and "callbacks already run" one fact: no callback is lost or run twice.
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    def cancel(self) -> None:
        """Cancel, and run every callback once in this thread. Does nothing the second time."""
        with self._lock:
            if self._cancelled:
                return
            self._cancelled = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def is_cancelled(self) -> bool:
        """Tell whether `cancel` was called."""
        return self._cancelled

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Have `callback` run on cancel; at once when that has happened already."""
        with self._lock:
            if not self._cancelled:
                self._callbacks.append(callback)
                return
        callback()

    def remove_callback(self, callback: Callable[[], None]) -> None:
        """Forget `callback`, so that a long-lived token does not keep finished calls alive."""
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

    def link_future(self, future: FutureT) -> FutureT:
        """Cancel `future` on cancel, and give it back."""
        self.add_callback(lambda: _cancel(future))
        return future


def _cancel(future: _Cancellable) -> None:
    future.cancel()


@contextlib.contextmanager
def heeding(
    token: Token | None, loop: asyncio.AbstractEventLoop, act: Callable[[], object]
) -> Generator[None]:
    """Inside, have `act` called on `loop` when `token` is cancelled, whichever thread does that; not after the end.

    AutoGen's token cannot forget a callback. So what stays with it holds nothing, and does nothing any more.
    """
    held = [(loop, act)]

    def now() -> None:
        for _, held_act in held:
            held_act()

    def cancelled() -> None:
        for held_loop, _ in held:
            with contextlib.suppress(RuntimeError):  # the loop is gone with its process
                held_loop.call_soon_threadsafe(now)

    if token is not None:
        token.add_callback(cancelled)
    try:
        yield
    finally:
        held.clear()
        if forget := getattr(token, "remove_callback", None):
            forget(cancelled)
