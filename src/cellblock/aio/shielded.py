"""Wait for work to finish even if the waiting task is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from ..cancellation import ABANDONED_GRACE, CancellationToken

P = ParamSpec("P")
T = TypeVar("T")


async def wait_shielded(work: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:
    """Wait for `work` and return its result. Ignore cancellations of the waiting task until then.

    Meant for clean-up during a cancellation, which continues afterwards.
    """
    future = asyncio.ensure_future(work)
    while not future.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([future])
    return future.result()


async def run_to_end(work: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:
    """Wait for `work` and return its result.

    If the waiting task is cancelled, `work` still runs to its end before `CancelledError` is
    raised. Meant for steps that must not stop halfway, and never overlap with the clean-up.
    """
    future = asyncio.ensure_future(work)
    try:
        await asyncio.wait([future])
    except asyncio.CancelledError:
        await wait_shielded(asyncio.wait([future]))
        if not future.cancelled():
            future.exception()  # so that asyncio does not log it as never retrieved
        raise
    return future.result()


async def end_by_token(work: Coroutine[Any, Any, T], token: CancellationToken) -> T:
    """Return the result of `work`, which `token` ends early.

    If the waiting task is cancelled, `token` is cancelled before `CancelledError` is raised: so
    `work` ends with what it knows. It is cancelled, too, if it does not end by its token.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        token.cancel()
        await wait_shielded(asyncio.wait([task], timeout=ABANDONED_GRACE))
        task.cancel()
        await wait_shielded(asyncio.wait([task]))
        if not task.cancelled():
            task.exception()  # so that asyncio does not log it as never retrieved
        raise
    return task.result()


async def run_in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `function` in a thread, to its end as `run_to_end` does, and return its result."""
    loop = asyncio.get_running_loop()
    return await run_to_end(
        loop.run_in_executor(None, functools.partial(function, *args, **kwargs))
    )
