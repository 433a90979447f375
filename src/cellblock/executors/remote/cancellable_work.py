"""Wait for work that a token can cancel, until the work has really ended."""

from __future__ import annotations

import asyncio
from typing import Any

from ...aio.shielded import wait_shielded
from ...cancellation import Token, on_cancel


async def wait_for_end(work: asyncio.Task[Any], token: Token | None) -> None:
    """Wait until `work` has ended. Cancel it once if `token` or the waiting task is cancelled.

    Its own clean-up is not cancelled. Then `CancelledError` propagates to the waiting task.
    """
    was_cancelled = False

    def cancel() -> None:
        nonlocal was_cancelled
        if not was_cancelled:
            was_cancelled = True
            work.cancel()

    try:
        with on_cancel(token, asyncio.get_running_loop(), cancel):
            await asyncio.wait([work])
    finally:
        if not work.done():
            cancel()
            await wait_shielded(asyncio.wait([work]))
