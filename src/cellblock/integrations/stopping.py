"""When what an adapter runs ends: at the time limit of its sandbox, or when its framework stops it.

What boxes and sessions run has ended before a cancelled call of theirs returns. So adapters await
it, and never leave it to a thread.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from ..aio.shielded import wait_shielded

T = TypeVar("T")
IsStopped = Callable[[], bool]

_POLL_SECONDS = 0.02
_AT_ONCE = 1e-9


class _HasTimeout(Protocol):
    @property
    def timeout(self) -> float | None: ...


def time_limit(sandbox: _HasTimeout, seconds: float | None) -> float | None:
    """Return the time limit of a command: `seconds` if the framework names it, or the sandbox's.

    A limit of 0 has passed at once, as for asyncio. Boxes only take one that can be kept.
    """
    return sandbox.timeout if seconds is None else max(seconds, _AT_ONCE)


async def until_stopped(work: Coroutine[Any, Any, T], is_stopped: IsStopped) -> T:
    """Await `work`, for frameworks that stop it by a flag.

    Once `is_stopped()` is true, cancel `work`, wait for its clean-up and raise `CancelledError`.
    """
    task = asyncio.create_task(work)
    try:
        while not task.done() and not is_stopped():
            await asyncio.wait([task], timeout=_POLL_SECONDS)
    finally:
        task.cancel()
        await wait_shielded(asyncio.wait([task]))
        if not task.cancelled():
            task.exception()  # so that asyncio does not log it as never retrieved
    return task.result()


class EndsWithTask:
    """A method for `asyncio.to_thread(self.method, ...)`, which does not tell it of a cancellation.

    The method gets `is_stopped` as its last argument: whether the task that has looked it up is not
    waiting for it any more.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method, self.__doc__ = method, method.__doc__

    def __get__(self, owner: object, kind: type | None = None) -> Callable[..., Any]:
        if owner is None:
            return self._method
        is_stopped = threading.Event()
        try:
            task = asyncio.current_task()
        except RuntimeError:  # it is called without a loop, and nobody waits
            task = None
        if task is not None:  # at its next step, the loop sees what the task waits for
            task.get_loop().call_soon(_set_if_cancelled, task, is_stopped)
        return functools.partial(self._method, owner, is_stopped=is_stopped.is_set)


def _set_if_cancelled(task: asyncio.Task[Any], event: threading.Event) -> None:
    # No public name of asyncio says what a task waits for. anyio reads this one too.
    waited_for: asyncio.Future[Any] | None = getattr(task, "_fut_waiter", None)
    if waited_for is not None:
        waited_for.add_done_callback(lambda future: future.cancelled() and event.set())
