"""Ctrl-C and SIGTERM while blocks run: what has begun is ended in order, and what was printed is kept."""

from __future__ import annotations

import asyncio
import signal
from types import TracebackType
from typing import Any, Self

from ..cancellation import CancellationToken

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Listen to both signals, for the task that makes this.

    While the executor starts, a signal cancels the task. While blocks run, the first one cancels `token` and the
    second one the task. During clean-up they only set `exit_code`: clean-up is bounded, and half of it would leave
    things behind. After it, they end the process at once.
    """

    def __init__(self) -> None:
        self.token = CancellationToken()
        self.exit_code = 0
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[Any] | None = asyncio.current_task()
        self._starting = True
        # Ignored from the start: a job in the background, which the terminal's Ctrl-C is not for.
        self._numbers = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]

    def __enter__(self) -> Self:
        for number in self._numbers:
            self._loop.add_signal_handler(number, self._take, number)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number in self._numbers:
            self._loop.remove_signal_handler(number)
            # Not Python's: an exception in the last moments of the process would only be noise.
            signal.signal(number, signal.SIG_DFL)

    def started(self) -> None:
        """Say that blocks run from now on."""
        self._starting = False

    def stopping(self) -> None:
        """Say that only clean-up is left."""
        self._task = None

    def _take(self, number: int) -> None:
        is_second, self.exit_code = self.exit_code != 0, 128 + number
        self.token.cancel()
        if self._task is not None and (self._starting or is_second):
            self._task.cancel()
            # Cancelled once: another cancellation would meet the clean-up.
            self._task = None
