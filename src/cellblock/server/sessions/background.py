"""Runs in the background: they go on without a request that waits for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ...errors import SessionError, WorkspaceError
from ..refusals import Refusal
from .session import SessionRun

# Gets what to call when the run has its place in the queue.
Work = Callable[[Callable[[], object]], Awaitable[object]]
_log = logging.getLogger(__name__)
_FAILED = "The server could not run the code. Its log has the details."


class BackgroundRuns:
    """The background runs of a server. Belongs to one event loop."""

    def __init__(self) -> None:
        self._tasks = set[asyncio.Task[None]]()

    async def start(self, run: SessionRun, work: Work) -> None:
        """Start `work`, and wait until the run is in the queue. Raise what prevents that.

        What `work` raises later is the run's `failure`.
        """
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(_work(run, work, admitted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await admitted

    def cancel(self) -> None:
        """End all runs."""
        for task in self._tasks:
            task.cancel()


async def _work(run: SessionRun, work: Work, admitted: asyncio.Future[None]) -> None:
    try:
        await work(lambda: admitted.done() or admitted.set_result(None))
    except Exception as error:
        is_public = isinstance(error, Refusal | SessionError | WorkspaceError)
        run.failure = str(error) if is_public else _FAILED
        if not is_public:
            _log.error("A run in the background failed", exc_info=error)
        if not admitted.done():
            admitted.set_exception(error)
    except asyncio.CancelledError:
        run.failure = "The server has stopped."
        raise
    finally:
        run.ended.set()
