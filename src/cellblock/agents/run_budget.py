"""How long one run of an agent may take, and how many tokens it may use."""

from __future__ import annotations

import asyncio
from typing import Self

from ..aio.running_loop import running_loop
from ..cancellation import ABANDONED_GRACE, CancellationToken
from ..models.messages import RequestUsage


class RunBudget:
    """The time and the tokens of one run. A context manager around the run.

    `token` is cancelled if the caller's token is, or if the time is over. `stop_reason` says why
    the run has to end; None while it may continue.
    """

    def __init__(
        self,
        caller_token: CancellationToken,
        *,
        max_seconds: float | None,
        max_tokens: int | None,
    ) -> None:
        self.token = CancellationToken()
        self.stop_reason: str | None = None
        self._caller_token = caller_token
        self._max_seconds = max_seconds
        self._max_tokens = max_tokens
        self._tokens = 0
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._caller_token.add_callback(self.token.cancel)
        self._caller_token.add_repeat_callback(self.token.cancel)
        if self._max_seconds is not None:
            loop = running_loop()
            self._timer = loop.call_later(self._max_seconds, self._end_time)
        return self

    def __exit__(self, *error: object) -> None:
        self._caller_token.remove_callback(self.token.cancel)
        if self._timer is not None:
            self._timer.cancel()

    def add_usage(self, usage: RequestUsage) -> None:
        """Count the tokens of a request."""
        self._tokens += usage.prompt_tokens + usage.completion_tokens
        if self._max_tokens is not None and self._tokens >= self._max_tokens:
            self.stop_reason = (
                f"The model has used {self._tokens} tokens; the limit is {self._max_tokens} "
                "(max_tokens)."
            )

    def raise_if_cancelled(self) -> None:
        """Raise `CancelledError` if the caller's token is cancelled, or the time is over."""
        if self.token.is_cancelled():
            raise asyncio.CancelledError("The cancellation token was cancelled.")

    def is_time_over(self) -> bool:
        """Return True if the time is over and the run was not cancelled from outside."""
        task = asyncio.current_task(running_loop())
        is_cancelled = self._caller_token.is_cancelled() or (task is not None and task.cancelling())
        return self.token.is_cancelled() and not is_cancelled

    def _end_time(self) -> None:
        self.stop_reason = f"The time limit of {self._max_seconds} seconds (max_seconds) is over."
        self.token.cancel()
        loop = running_loop()
        self._timer = loop.call_later(ABANDONED_GRACE, self.token.cancel)
