"""End a whole tree of processes, whatever its members do about it."""

from __future__ import annotations

import contextlib
import os
import signal

_PAGE = 1 << 16


def descendants(root: int) -> list[int]:
    """List the processes below `root`, parents first."""
    found: list[int] = []
    pending = [root]
    while pending:
        below = children(pending.pop())
        found += below
        pending += below
    return found


def children(pid: int) -> list[int]:
    """List the children of process `pid`; none when there is no such process."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    return found


def _read(path: str) -> bytes:
    # Without the layers of `open`: this is read after every block.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(descriptor, _PAGE)
        while len(data) % _PAGE == 0 and (more := os.read(descriptor, _PAGE)):
            data += more
        return data
    finally:
        os.close(descriptor)


def is_zombie(pid: int) -> bool:
    """Tell whether process `pid` has ended and only waits to be reaped, or is gone."""
    try:
        return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[0] in b"ZX"
    except OSError:
        return True


def send(pid: int, number: int) -> None:
    """Send signal `number` to process `pid`, if there is one that may be sent it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def kill_below(root: int) -> bool:
    """Send SIGKILL to every process below `root`; tell whether there was one.

    They are stopped first, so that none of them can fork while the list is walked.
    """
    pids = descendants(root)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            send(pid, number)
    return bool(pids)


def kill_namespace() -> None:
    """As the first process of a process namespace: send SIGKILL to all others in it, in one step."""
    if os.getpid() != 1:  # outside, -1 would mean every process of this user
        raise AssertionError("kill_namespace outside a process namespace")
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)


def reap_all() -> bool:
    """Reap children that have ended; tell whether any child is left."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
