"""`os.wait` and its kin for a process that has children its code must not know of: the checkpoints of a live session."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

from .forks import children


def hide(hidden: set[int]) -> None:
    """Make the functions of `os` that wait for any child pass over those in `hidden`, which may change."""
    real_waitpid, real_wait4, real_waitid = os.waitpid, os.wait4, os.waitid

    def visible(call: Callable[[], Any], pid_of: Callable[[Any], int]) -> Any:
        while True:
            if hidden.issuperset(children()):
                raise ChildProcessError(errno.ECHILD, os.strerror(errno.ECHILD))
            result = call()
            if result is None or pid_of(result) not in hidden:
                return result
            hidden.discard(pid_of(result))

    def waitpid(pid: int, options: int, /) -> tuple[int, int]:
        if pid != -1 or not hidden:
            return real_waitpid(pid, options)
        return visible(lambda: real_waitpid(pid, options), lambda result: result[0])

    def wait4(pid: int, options: int) -> tuple[int, int, Any]:
        if pid != -1 or not hidden:
            return real_wait4(pid, options)
        return visible(lambda: real_wait4(pid, options), lambda result: result[0])

    def waitid(kind: int, number: int, options: int, /) -> Any:
        if kind != os.P_ALL or not hidden:
            return real_waitid(kind, number, options)
        return visible(lambda: real_waitid(kind, number, options), lambda result: result.si_pid)

    os.waitpid, os.wait4, os.waitid = waitpid, wait4, waitid
    os.wait = lambda: os.waitpid(-1, 0)
    os.wait3 = lambda options: os.wait4(-1, options)
