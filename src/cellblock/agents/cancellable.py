"""Raise `CancelledError` in a waiting agent when its token is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator
from typing import TypeVar

from ..aio.running_loop import running_loop
from ..cancellation import CancellationToken, on_cancel

T = TypeVar("T")
_MESSAGE = "The cancellation token was cancelled."


@contextlib.contextmanager
def cancelled_by(token: CancellationToken) -> Generator[None]:
    """While the context is open, raise `CancelledError` in this task if `token` is cancelled.

    The context must not contain a `yield`: the code after it may belong to the caller.
    """
    _raise_if_cancelled(token)
    with _cancels_task(token):
        yield


def _raise_if_cancelled(token: CancellationToken) -> None:
    if token.is_cancelled():
        raise asyncio.CancelledError(_MESSAGE)


@contextlib.contextmanager
def _cancels_task(token: CancellationToken) -> Generator[None]:
    task = asyncio.current_task(running_loop())
    assert task is not None
    requests = 0

    def cancel() -> None:
        nonlocal requests
        requests += 1
        task.cancel(_MESSAGE)

    with on_cancel(token, running_loop(), cancel):
        try:
            yield
        finally:
            for _ in range(requests):
                task.uncancel()  # the task itself was not cancelled


async def until_cancelled(
    stream: AsyncGenerator[T, None], token: CancellationToken
) -> AsyncGenerator[T, None]:
    """Yield the items of `stream`; raise `CancelledError` in it if `token` is cancelled.

    What `stream` yields in answer to the cancellation is passed on: one item, if the token is
    cancelled between two of them. It is closed at the end.
    """
    async with contextlib.aclosing(stream):
        _raise_if_cancelled(token)
        is_cancelled = False
        while not is_cancelled:
            is_cancelled = token.is_cancelled()
            try:
                with _cancels_task(token):
                    item = await anext(stream)
            except StopAsyncIteration:
                return
            yield item
        _raise_if_cancelled(token)
