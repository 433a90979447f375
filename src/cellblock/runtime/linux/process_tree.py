"""List and kill process trees, even if their members try to prevent it."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import signal
from collections import defaultdict
from collections.abc import Generator

from .held_file import HeldFile

_SIGKILL = 9  # signal.SIGKILL, which Windows does not have
_EXITING = 4  # PF_EXITING, in the flags of /proc/PID/stat
_KILL_BIT = 1 << (_SIGKILL - 1)
_PAGE = 1 << 16
_MAX_COMMAND_LINE = 1000  # bytes
_FULL = 4000  # bytes; a longer list may be incomplete: the kernel returns one page per read
# Errors that do not mean that the process has ended.
_FAULTS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
_ONE_THREAD = 3  # links of /proc/PID/task: itself, its parent, one thread


def descendants(root: int) -> list[int]:
    """Return the processes below `root`, parents first."""
    below_of = children if _kernel_lists_children() else _children_by_parent().__getitem__
    found: list[int] = []
    pending = [root]
    while pending:
        below = below_of(pending.pop())
        found += below
        pending += below
    return found


def children(pid: int) -> list[int]:
    """Return the children of process `pid`, none if there is no such process.

    Raise `OSError` if they cannot be listed, for example with too many open files.
    """
    if not _kernel_lists_children():
        return _children_by_parent()[pid]
    found: list[int] = []
    with _without_process():
        for thread in os.listdir(f"/proc/{pid}/task"):
            with _without_process():
                found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    return found


@contextlib.contextmanager
def _without_process() -> Generator[None]:
    """Ignore an `OSError` that means that the process or thread has ended."""
    try:
        yield
    except OSError as error:
        if error.errno in _FAULTS:
            raise


@functools.cache
def _kernel_lists_children() -> bool:
    return os.path.exists("/proc/thread-self/children")


def _children_by_parent() -> defaultdict[int, list[int]]:
    """Return the children of every process, for kernels without lists of children (gVisor)."""
    found = defaultdict[int, list[int]](list)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            # The name, in brackets, may contain spaces and brackets.
            found[int(_read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])].append(int(pid))
    return found


def threads_of_user(user: int) -> int:
    """Return the number of threads that a user runs, as far as /proc shows them."""
    count = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            lines = _read(f"/proc/{pid}/status").decode(errors="replace").splitlines()
            fields = dict(line.split(":", 1) for line in lines)
            if int(fields["Uid"].split()[0]) == user:
                count += int(fields["Threads"])
    return count


def start_time(pid: int) -> str:
    """Return the start time of process `pid` in clock ticks since boot, "" if it has ended.

    The process ID and the start time together identify a process. Raise `OSError` if it cannot be
    read, for example with too many open files.
    """
    try:
        # The name, in brackets, may contain spaces and brackets.
        state, *rest = (
            _read(f"/proc/{pid}/stat").decode(errors="replace").rpartition(")")[2].split()
        )
    except OSError as error:
        if error.errno in _FAULTS:
            raise
        return ""
    return "" if state in "ZX" else rest[18]


def _read(path: str) -> bytes:
    # Without the layers of `open`, since this runs after every block.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(descriptor, _PAGE)
        while len(data) % _PAGE == 0 and (more := os.read(descriptor, _PAGE)):
            data += more
        return data
    finally:
        os.close(descriptor)


class ChildList:
    """Lists the children of one process. Faster than `children` for many calls."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._threads = HeldFile(f"/proc/{pid}/task")
        self._list = HeldFile(f"/proc/{pid}/task/{pid}/children")

    def list(self) -> list[int]:
        """Return the current children, none if the process has ended. Raises as `children`."""
        try:
            if self._threads.link_count() == _ONE_THREAD:
                data = self._list.read(_PAGE)
                return list(map(int, data.split())) if len(data) < _FULL else children(self.pid)
        except OSError as error:
            if error.errno in _FAULTS:
                raise
            return [] if _kernel_lists_children() else children(self.pid)
        return children(self.pid)

    def close(self) -> None:
        """Close the files in /proc."""
        self._threads.release()
        self._list.release()


def pid_in_namespace(pid: int, *, above: int = 0) -> int:
    """Return the ID of process `pid` in its own process namespace, 0 if it has ended.

    `above` is the number of a namespace above that, counted from its own.

    Raise `OSError` if it cannot be read, for example with too many open files.
    """
    found = _namespace_ids(pid)
    return found[-1 - above] if found else 0


def pid_seen_by(pid: int, observer: int) -> int:
    """Return the ID of process `pid` in the process namespace of `observer`, which contains it.

    Return 0 if one of them has ended. Raise as `pid_in_namespace`.
    """
    found, depth = _namespace_ids(pid), len(_namespace_ids(observer))
    return found[depth - 1] if 0 < depth <= len(found) else 0


def _namespace_ids(pid: int) -> list[int]:
    """Return the IDs of process `pid` in our namespace, in those below, and in its own."""
    with _without_process():
        for line in _read(f"/proc/{pid}/status").splitlines():
            if line.startswith(b"NSpid:"):
                return [int(word) for word in line.split()[1:]]
        return [pid]  # gVisor has no such line; there, both are in the same namespace
    return []


def has_ended(pid: int) -> bool:
    """Return True if process `pid` has ended, whether or not it has been reaped.

    Raise `OSError` if it cannot be read, for example with too many open files.
    """
    with _without_process():
        return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[0] in b"ZX"
    return True


def command_line(pid: int) -> str:
    """Return the beginning of the command line of process `pid`, "" if it is not known."""
    with contextlib.suppress(OSError):
        line = _read(f"/proc/{pid}/cmdline")[:_MAX_COMMAND_LINE].rstrip(b"\0")
        return line.replace(b"\0", b" ").decode(errors="replace")
    return ""


def parent_of(pid: int) -> int:
    """Return the process ID of the parent of process `pid`, 0 if it is not known."""
    try:
        return int(_read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def cpu_wait(pid: int) -> float:
    """Return for how many seconds the first thread of `pid` was ready and had no CPU, as known."""
    try:
        return int(_read(f"/proc/{pid}/schedstat").split()[1]) / 1e9
    except OSError:  # also of gVisor
        return 0.0


def is_ending(pid: int) -> bool:
    """Return True if process `pid` has ended, is about to, or was killed and does not know yet."""
    try:
        state, *fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        status = _read(f"/proc/{pid}/status")
    except OSError as error:
        if error.errno in _FAULTS:
            raise
        return True
    if state in b"ZX" or int(fields[5]) & _EXITING:
        return True
    pending = (line.split()[1] for line in status.splitlines() if b"Pnd:" in line)
    return any(int(signals, 16) & _KILL_BIT for signals in pending)


def handles_signal(pid: int, number: int) -> bool:
    """Return True if process `pid` has a handler for signal `number`, as far as is known."""
    try:
        status = _read(f"/proc/{pid}/status")
    except OSError:
        return False
    for line in status.splitlines():
        if line.startswith(b"SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return True  # gVisor has no such line


def exists(pid: int) -> bool:
    """Return True if there is a process `pid`, which may have ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def send_signal(pid: int, number: int) -> None:
    """Send signal `number` to process `pid`. Ignore a missing process or permission."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def kill_descendants(root: int) -> bool:
    """Send SIGKILL to every process below `root`. Return True if there was one.

    They are stopped first, so that they cannot fork while the list is processed.
    """
    pids = descendants(root)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            send_signal(pid, number)
    return bool(pids)


def kill_session(leader: int) -> None:
    """Send SIGKILL to the processes of the session that `leader` leads, see setsid(2).

    They are below that process, or were adopted by this one.
    One call kills its process group, others are stopped first. One that is being forked may escape.
    """
    with contextlib.suppress(OSError):
        os.killpg(leader, _SIGKILL)
    with contextlib.suppress(OSError):
        found = {*descendants(leader), *descendants(os.getpid())}
        members = [pid for pid in found if session_of(pid) == leader]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in members:
                send_signal(pid, number)


def session_of(pid: int) -> int:
    """Return the ID of the session of process `pid`, 0 if it has ended."""
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def kill_namespace() -> None:
    """From the first process of a process namespace, send SIGKILL to all others with one call."""
    _signal_namespace(_SIGKILL)


def stop_namespace() -> list[int]:
    """The same with SIGSTOP. Return the processes that were stopped before."""
    before = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_stopped(pid)]
    _signal_namespace(signal.SIGSTOP)
    return before


def continue_namespace(stopped: list[int]) -> None:
    """Continue what `stop_namespace` has stopped. It returned `stopped`, which stay so."""
    _signal_namespace(signal.SIGCONT)
    for pid in stopped:
        send_signal(pid, signal.SIGSTOP)


def _is_stopped(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[0] == b"T"
    return False


def _signal_namespace(number: int) -> None:
    if os.getpid() != 1:  # elsewhere, -1 means every process of the user
        raise AssertionError("this is not the first process of a process namespace")
    try:  # no `contextlib` or enums: after a fork, each touched object is copied
        os.kill(-1, number)
    except ProcessLookupError:
        pass


def reap_all() -> bool:
    """Reap children that have ended. Return True if a child is left."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
