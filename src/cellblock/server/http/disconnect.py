"""Cancel the work of a request when its client has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

T = TypeVar("T")


async def run_while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns. Call it after the body was read.

    If the client disconnects, `work` is cancelled, and after its clean-up `ClientDisconnect` is
    raised.
    """
    task = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        for each in (task, watcher):
            if not each.done():
                each.cancel()
        await asyncio.wait({task, watcher})


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
