"""Run the coroutines of async tools from a synchronous chat.

They run on a separate event loop, one for the whole process. So an object that one tool
created, such as an HTTP session, still works in the next one.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ...aio.background_loop import BackgroundLoop

T = TypeVar("T")


def run_coroutine(work: Coroutine[Any, Any, T]) -> T:
    """Run `work`, block this thread until it is done, and return its result.

    An interrupt (Ctrl-C) cancels `work`. An async tool may itself start a synchronous chat.
    """
    work = _in_context(work, contextvars.copy_context())
    tools = _tool_loop(os.getpid())
    if _running_loop() is not tools.loop:
        return tools.run(work)
    with ThreadPoolExecutor(1) as thread:  # this thread is the loop's own: it cannot wait for it
        return thread.submit(asyncio.run, work).result()


@functools.cache
def _tool_loop(process_id: int) -> BackgroundLoop:
    """Return the loop of the process `process_id`: threads do not survive a fork."""
    return BackgroundLoop()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _in_context(work: Coroutine[Any, Any, T], context: contextvars.Context) -> T:
    return await asyncio.get_running_loop().create_task(work, context=context)
