"""The processes that user code leaves in a session's cell, besides the session's own."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from ...linux import process_tree
from ...messages import ContinueAll, StopAll
from ..event_loop import FOREVER
from .channel import Channel
from .checkpoints import CheckpointSet
from .init_handle import SessionInitHandle

_SECONDS_UNTIL_STOP = 0.2  # of killing one by one


class SessionOrphans:
    """Finds, kills and stops these processes. `main_pid` is the session's process, or 0.

    spares_commands   the cell has a box, whose commands are not killed
    is_paused         they are stopped
    is_stopping       all processes of the cell are, or are about to be
    on_unpause        is called when they go on
    """

    def __init__(self, init: SessionInitHandle, checkpoints: CheckpointSet) -> None:
        self._init, self._checkpoints = init, checkpoints
        self._stopped = set[int]()
        self._stop_at = FOREVER
        self.spares_commands = self.is_paused = self.is_stopping = False
        self.on_unpause: Callable[[], None] = lambda: None

    def find(self, main_pid: int, *, spares_commands: bool = False) -> list[int]:
        """Return the process IDs of the topmost ones."""
        others = self._checkpoints.pids()
        return self._init.find_orphans(main_pid, others, spares_commands=spares_commands)

    def kill(self, main_pid: int) -> bool:
        """Kill them with all their descendants. Return True if there were any: call it again then.

        Until there are none, or `allow_forks`, nothing in the cell can fork. If that cannot be
        prevented, and there are some again and again, all its processes are stopped first.

        Kill none while a checkpoint is being made, which looks like one of them.
        """
        if self.is_stopping:
            return True
        if not self._checkpoints.is_resolved:
            return False
        found = self.find(main_pid, spares_commands=self.spares_commands)
        now = time.monotonic()
        if not found:
            self.allow_forks()
        elif now < self._stop_at or self.is_paused:
            if self._stop_at == FOREVER:
                self._stop_at = now + _SECONDS_UNTIL_STOP
                self._init.allow_forks(allowed=False)
            _kill_trees(found)
        else:
            self._stop_at, self.is_stopping = now + _SECONDS_UNTIL_STOP, True
            self._init.send_order(StopAll(), [], lambda _error: self._kill_stopped(main_pid))
        return bool(found)

    def allow_forks(self) -> None:
        """Let what is left fork again."""
        if self._stop_at != FOREVER:
            self._stop_at = FOREVER
            self._init.allow_forks(allowed=True)

    def _kill_stopped(self, main_pid: int) -> None:
        try:
            _kill_trees(self.find(main_pid, spares_commands=self.spares_commands))
        finally:
            self._init.send_order(ContinueAll(), [], lambda _error: self._on_continued())

    def _on_continued(self) -> None:
        self.is_stopping = False

    def pause(self, main: Channel | None) -> None:
        """Stop the session's process, and all of them with their descendants."""
        self.is_paused = True
        if main is not None:
            main.signal(signal.SIGSTOP)
        found = self._find_all(main)
        stopped, self._stopped = found | self._stopped, found
        for pid in stopped:
            process_tree.send_signal(pid, signal.SIGSTOP)

    def unpause(self, main: Channel | None) -> None:
        """Continue all these, and the processes that were stopped but are no orphans any more.

        Such a process may belong to a branch by now.
        """
        self.is_paused = False
        if main is not None:
            main.signal(signal.SIGCONT)
        stopped, self._stopped = self._stopped, set[int]()
        try:
            stopped |= self._find_all(main)
        finally:  # also if /proc cannot be read
            for pid in stopped:
                process_tree.send_signal(pid, signal.SIGCONT)
            self.on_unpause()

    def _find_all(self, main: Channel | None) -> set[int]:
        return {
            pid
            for orphan in self.find(0 if main is None else main.pid)
            for pid in (orphan, *process_tree.descendants(orphan))
        }


def _kill_trees(roots: list[int]) -> None:
    for pid in roots:
        process_tree.kill_descendants(pid)
        process_tree.send_signal(pid, signal.SIGKILL)
