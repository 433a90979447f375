"""Hide the checkpoints of a session from `os.wait` and similar functions in user code."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

from .fork_state import list_children


def hide_children(hidden: set[int]) -> None:
    """Make the functions of `os` that wait for any child ignore those in `hidden`.

    `hidden` may change later.
    """
    # The module that user code sees. At the top of this file `os` is our copy, see `stdlib_copy`.
    import os as user_os

    waitpid, wait4, waitid = user_os.waitpid, user_os.wait4, user_os.waitid

    def is_any(pid: object) -> bool:
        return pid == -1 and bool(hidden)

    def new_waitpid(pid: int, options: int, /) -> tuple[int, int]:
        return (
            _wait_for_visible(hidden, lambda: waitpid(pid, options))
            if is_any(pid)
            else waitpid(pid, options)
        )

    def new_wait4(pid: int, options: int) -> tuple[int, int, Any]:
        return (
            _wait_for_visible(hidden, lambda: wait4(pid, options))
            if is_any(pid)
            else wait4(pid, options)
        )

    def new_waitid(kind: int, number: int, options: int, /) -> Any:
        pid = -1 if kind == os.P_ALL else number
        return (
            _wait_for_visible(hidden, lambda: waitid(kind, number, options))
            if is_any(pid)
            else waitid(kind, number, options)
        )

    user_os.waitpid, user_os.wait4, user_os.waitid = new_waitpid, new_wait4, new_waitid
    user_os.wait = lambda: user_os.waitpid(-1, 0)
    user_os.wait3 = lambda options: user_os.wait4(-1, options)


def _wait_for_visible(hidden: set[int], call: Callable[[], Any]) -> Any:
    """Repeat `call` until it reports a child that is not hidden, and return its result.

    Raise `ChildProcessError` if there is no such child.
    """
    while True:
        if hidden.issuperset(list_children()):
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
