"""OpenRequests: the requests that are not answered yet, for the end of the server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator

from ...refusals import Draining


class OpenRequests:
    """The requests that are being handled. Belongs to one event loop."""

    def __init__(self) -> None:
        self._tasks = set[asyncio.Task[object]]()
        self._are_ended = False

    @contextlib.contextmanager
    def handling(self) -> Generator[None]:
        """Raise `Draining` in the context if `end` is called meanwhile."""
        task = asyncio.current_task()
        assert task is not None, "handlers run in the task of their request"
        self._tasks.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if not self._are_ended:
                raise
            task.uncancel()
            raise Draining("The server has stopped. Send the request again later.") from None
        finally:
            self._tasks.discard(task)

    def end(self) -> None:
        """End all handlers."""
        self._are_ended = True
        for task in self._tasks:
            task.cancel()
