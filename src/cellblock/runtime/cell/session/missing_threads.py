"""The threads that a copy of this session lacks, and when the user has to know."""

from __future__ import annotations

import threading

from . import fork_state, helper_threads, native_threads
from .shell import Shell


class MissingThreads:
    """Ends helper threads, and finds the threads that a copy would lack."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._announced: list[str] = []
        self.of_last_copy: list[str] = []

    def end_helpers(self) -> bool:
        """Return True if this process has one thread, if need be after it ended those of helpers.

        Helpers are the threads in `helper_threads` and `native_threads`, and the script thread.
        """
        if fork_state.is_single_threaded():
            return True
        try:
            helper_threads.end_helper_threads()
            if fork_state.is_single_threaded():
                return True
            self._shell.end_script_thread()
            native_threads.end_pools()
            return fork_state.is_single_threaded()
        except Exception:
            return False  # user code may have changed the shell in any way

    def predict(self) -> list[str]:
        """Describe the threads that a copy will lack, without those that end before it."""
        return fork_state.predict_missing_threads(self._ends_before_copy)

    def _ends_before_copy(self, thread: threading.Thread) -> bool:
        return helper_threads.is_helper(thread) or self._shell.is_script_thread(thread)

    def to_announce(self) -> list[str]:
        """Return the threads that prevent copies from now on, [] if there were some before."""
        before = self._announced
        is_single = fork_state.is_single_threaded()
        self._announced = [] if is_single else self.predict() or self.of_last_copy
        return [] if before else self._announced
