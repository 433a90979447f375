"""The processes that user code leaves in a session's cell, besides the session's own."""

from __future__ import annotations

import signal
from collections.abc import Callable

from ...linux import process_tree
from .channel import Channel
from .checkpoints import CheckpointSet
from .init_handle import SessionInitHandle


class SessionOrphans:
    """Finds, kills and stops these processes. `main_pid` is the session's process, or 0.

    spares_commands   the cell has a box, whose commands are not killed
    is_paused         they are stopped
    on_unpause        is called when they go on
    """

    def __init__(self, init: SessionInitHandle, checkpoints: CheckpointSet) -> None:
        self._init, self._checkpoints = init, checkpoints
        self._stopped = set[int]()
        self.spares_commands = self.is_paused = False
        self.on_unpause: Callable[[], None] = lambda: None

    def find(self, main_pid: int, *, spares_commands: bool = False) -> list[int]:
        """Return the process IDs of the topmost ones."""
        others = self._checkpoints.pids()
        return self._init.find_orphans(main_pid, others, spares_commands=spares_commands)

    def kill(self, main_pid: int) -> bool:
        """Kill them with all their descendants. Return True if there were any.

        Kill none while a checkpoint is being made, which looks like one of them.
        """
        if not self._checkpoints.is_resolved:
            return False
        found = self.find(main_pid, spares_commands=self.spares_commands)
        for pid in found:
            process_tree.kill_descendants(pid)
            process_tree.send_signal(pid, signal.SIGKILL)
        return bool(found)

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
