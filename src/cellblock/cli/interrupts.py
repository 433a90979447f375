"""Ctrl-C and SIGTERM: what has begun is ended in order, and what was printed is kept."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from abc import ABC, abstractmethod
from collections.abc import Generator
from types import TracebackType
from typing import Any, Self

from ..cancellation import CancellationToken

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Signals(ABC):
    """Listen to both signals, for the task that makes this, from the start of an executor to the end of its clean-up.

    While it starts, a signal cancels the task. During clean-up they only set `exit_code`: clean-up is bounded, and half of
    it would leave things behind. After it, they end the process at once.
    """

    def __init__(self) -> None:
        self.exit_code = 0
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[Any] | None = asyncio.current_task()
        self._starting = True
        # Ignored from the start: a job in the background, which the terminal's Ctrl-C is not for.
        self._numbers = [
            number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN
        ]

    def __enter__(self) -> Self:
        for number in self._numbers:
            self._loop.add_signal_handler(number, self._take, number)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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

    @abstractmethod
    def _take(self, number: int) -> None:
        """Do what signal `number` asks for."""

    def _cancel_task(self) -> None:
        if self._task is not None:
            self._task.cancel()
            # Cancelled once: another cancellation would meet the clean-up.
            self._task = None


class Interrupts(_Signals):
    """While blocks run, the first signal cancels `token`, and the second one the task."""

    def __init__(self) -> None:
        super().__init__()
        self.token = CancellationToken()

    def _take(self, number: int) -> None:
        is_second, self.exit_code = self.exit_code != 0, 128 + number
        self.token.cancel()
        if self._starting or is_second:
            self._cancel_task()


class CellInterrupts(_Signals):
    """While somebody talks with a session, Ctrl-C ends the cell that runs, if any, and SIGTERM the whole."""

    def __init__(self) -> None:
        super().__init__()
        self._cell: CancellationToken | None = None

    @contextlib.contextmanager
    def cell(self) -> Generator[CancellationToken]:
        """Give the token of a cell that runs inside."""
        self._cell = CancellationToken()
        try:
            yield self._cell
        finally:
            self._cell = None

    def _take(self, number: int) -> None:
        if number == signal.SIGTERM or self._starting:
            self.exit_code = 128 + number
            self._cancel_task()
        elif self._cell is not None:
            self._cell.cancel()
