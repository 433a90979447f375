"""Cancel the work of a request once, and wait for its clean-up."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import anyio

T = TypeVar("T")


async def cancel_once(work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns. If the caller is cancelled, cancel `work` and wait for its end.

    The SDK's task groups cancel a request again and again until it ends. That would interrupt the
    clean-up of a run, which waits until its processes are dead. So `work` runs in its own task.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # the caller has gone, so it must be retrieved here
        raise
