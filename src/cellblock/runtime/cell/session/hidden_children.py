"""`os.wait` and its kin for a process that has children its code must not know of: the checkpoints of a live session."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

from .fork_state import children


def hide(hidden: set[int]) -> None:
    """Make the functions of `os` that wait for any child pass over those in `hidden`, which may change."""
    import os as theirs  # what code sees, and not our copy of it: see `library`

    waitpid, wait4, waitid = theirs.waitpid, theirs.wait4, theirs.waitid

    def of_any(pid: object) -> bool:
        return pid == -1 and bool(hidden)

    def new_waitpid(pid: int, options: int, /) -> tuple[int, int]:
        return (
            _visible(hidden, lambda: waitpid(pid, options))
            if of_any(pid)
            else waitpid(pid, options)
        )

    def new_wait4(pid: int, options: int) -> tuple[int, int, Any]:
        return _visible(hidden, lambda: wait4(pid, options)) if of_any(pid) else wait4(pid, options)

    def new_waitid(kind: int, number: int, options: int, /) -> Any:
        some = -1 if kind == os.P_ALL else number
        return (
            _visible(hidden, lambda: waitid(kind, number, options))
            if of_any(some)
            else waitid(kind, number, options)
        )

    theirs.waitpid, theirs.wait4, theirs.waitid = new_waitpid, new_wait4, new_waitid
    theirs.wait = lambda: theirs.waitpid(-1, 0)
    theirs.wait3 = lambda options: theirs.wait4(-1, options)


def _visible(hidden: set[int], call: Callable[[], Any]) -> Any:
    """Wait by `call` until it tells of a child that is not hidden. Raises `ChildProcessError` when there is none."""
    while True:
        if hidden.issuperset(children()):
            raise ChildProcessError(errno.ECHILD, os.strerror(errno.ECHILD))
        result = call()
        pid = (
            getattr(result, "si_pid", 0)
            if result is None or hasattr(result, "si_pid")
            else result[0]
        )
        if pid not in hidden:
            return result
        hidden.discard(pid)
