"""Handle Ctrl-C and SIGTERM: end running blocks in an orderly way and keep their output."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, Self

from ...cancellation import ABANDONED_GRACE, CancellationToken

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_NOTE_DELAY = 1.0  # seconds; most code ends sooner
_STOPPING = (
    "the code is being stopped; Ctrl-C again kills it, and a session goes back to before the block"
)


class _SignalHandler(ABC):
    """Handle both signals while an executor starts, runs and cleans up.

    While the executor starts, a signal cancels the task that created this object. During clean-up,
    which takes a bounded time and must be complete, a signal only sets `exit_code`. After that, a
    signal ends the process.
    """

    def __init__(self, note: Callable[[str], object]) -> None:
        self.exit_code = 0
        self._note = note
        self._note_timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[Any] | None = asyncio.current_task()
        self._starting = True
        # A signal that is already ignored stays ignored, as Ctrl-C is for a background job.
        self._numbers = [
            number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN
        ]

    def __enter__(self) -> Self:
        for number in self._numbers:
            self._loop.add_signal_handler(number, self._on_signal, number)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number in self._numbers:
            self._loop.remove_signal_handler(number)
            # Python's own handler would print a traceback while the process exits.
            signal.signal(number, signal.SIG_DFL)

    def set_running(self) -> None:
        """Record that the executor has started."""
        self._starting = False

    def set_stopping(self) -> None:
        """Record that clean-up has started."""
        self._task = None
        self._cancel_note()

    @abstractmethod
    def _on_signal(self, number: int) -> None:
        """Handle signal `number`."""

    def _stop_block(self, token: CancellationToken) -> None:
        """Cancel `token`. Say what a second Ctrl-C does if the block does not end soon."""
        if not token.is_cancelled():
            self._note_timer = self._loop.call_later(_NOTE_DELAY, self._print_note)
        token.cancel()

    def _print_note(self) -> None:
        # In a thread: a slow reader of the output must not delay Ctrl-C.
        self._loop.run_in_executor(None, self._note, _STOPPING)

    def _cancel_note(self) -> None:
        if self._note_timer is not None:
            self._note_timer.cancel()

    def _cancel_task(self) -> None:
        if self._task is not None:
            self._task.cancel()
            # A second cancellation would interrupt the clean-up.
            self._task = None


class RunInterrupts(_SignalHandler):
    """While blocks run, the first signal cancels `token`, and the second the task as well.

    `note` prints what a second signal does.
    """

    def __init__(self, note: Callable[[str], object]) -> None:
        super().__init__(note)
        self.token = CancellationToken()

    def _on_signal(self, number: int) -> None:
        is_second, self.exit_code = self.exit_code != 0, 128 + number
        self._stop_block(self.token)
        if number == signal.SIGTERM:  # most programs that send it send no second one
            self._loop.call_later(ABANDONED_GRACE, self.token.cancel)
        if self._starting or is_second:
            self._cancel_task()


class BatchInterrupts(_SignalHandler):
    """A signal cancels the task that judges programs."""

    def _on_signal(self, number: int) -> None:
        self.exit_code = 128 + number
        self._cancel_task()


class ReplInterrupts(_SignalHandler):
    """In an interactive session, Ctrl-C ends the running block, and SIGTERM ends the session.

    `note` prints what a second Ctrl-C does.
    """

    def __init__(self, note: Callable[[str], object]) -> None:
        super().__init__(note)
        self._block_token: CancellationToken | None = None

    @contextlib.contextmanager
    def block(self) -> Generator[CancellationToken]:
        """Yield the cancellation token of the block that runs in this context."""
        self._block_token = CancellationToken()
        try:
            yield self._block_token
        finally:
            self._block_token = None
            self._cancel_note()

    @contextlib.contextmanager
    def ignored(self) -> Generator[None]:
        """Ignore Ctrl-C in this context: it is for another program at the terminal."""
        token, self._block_token = self._block_token, None
        try:
            yield
        finally:
            self._block_token = token

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGTERM or self._starting:
            self.exit_code = 128 + number
            self._cancel_task()
        elif self._block_token is not None:
            self._stop_block(self._block_token)
