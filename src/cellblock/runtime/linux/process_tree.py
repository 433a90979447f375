"""End a whole tree of processes, whatever its members do about it."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from collections import defaultdict

_SIGKILL = int(signal.SIGKILL)
_PAGE = 1 << 16
_FULL = 4000  # bytes of a list that may go on: the kernel gives out a page at a time
_ONE_THREAD = 3  # links of the folder of a process's threads: itself, its parent, one thread


def descendants(root: int) -> list[int]:
    """List the processes below `root`, parents first."""
    below_of = children if _are_listed() else _by_parent().__getitem__
    found: list[int] = []
    pending = [root]
    while pending:
        below = below_of(pending.pop())
        found += below
        pending += below
    return found


def children(pid: int) -> list[int]:
    """List the children of process `pid`; none when there is no such process."""
    if not _are_listed():
        return _by_parent()[pid]
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    return found


@functools.cache
def _are_listed() -> bool:
    return os.path.exists("/proc/thread-self/children")


def _by_parent() -> defaultdict[int, list[int]]:
    """Give the children of every process, where the kernel lists none (gVisor's)."""
    found = defaultdict[int, list[int]](list)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            # The name, in brackets, may hold blanks and brackets itself.
            found[int(_read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])].append(int(pid))
    return found


def began(pid: int) -> str:
    """Give when process `pid` began, by the kernel's clock, which tells it from others of its number; "" if it has ended."""
    try:
        # The name, in brackets, may hold blanks and brackets itself.
        state, *rest = (
            _read(f"/proc/{pid}/stat").decode(errors="replace").rpartition(")")[2].split()
        )
    except OSError:
        return ""
    return "" if state in "ZX" else rest[18]


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


class Children:
    """The children of one process that is asked for them often."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._threads = self._list = -1
        with contextlib.suppress(OSError):
            self._threads = os.open(f"/proc/{pid}/task", os.O_RDONLY | os.O_CLOEXEC)
            self._list = os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY | os.O_CLOEXEC)

    def list(self) -> list[int]:
        """List them as they are now; none when there is no such process any more."""
        try:
            if os.fstat(self._threads).st_nlink == _ONE_THREAD:
                data = os.pread(self._list, _PAGE, 0)
                return list(map(int, data.split())) if len(data) < _FULL else children(self.pid)
        except OSError:
            return [] if _are_listed() else children(self.pid)
        return children(self.pid)

    def close(self) -> None:
        """Let go of it."""
        for descriptor in (self._threads, self._list):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._threads = self._list = -1


def number_inside(pid: int) -> int:
    """Give the number that process `pid` has in its own process namespace; 0 when it is gone."""
    with contextlib.suppress(OSError):
        for line in _read(f"/proc/{pid}/status").splitlines():
            if line.startswith(b"NSpid:"):
                return int(line.split()[-1])
        return (
            pid  # a kernel without the line, such as gVisor's, where we are in the same namespace
        )
    return 0


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
    try:  # without `contextlib` and enums: each object that is touched has to be copied after a fork
        os.kill(-1, _SIGKILL)
    except ProcessLookupError:
        pass


def reap_all() -> bool:
    """Reap children that have ended; tell whether any child is left."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
