"""Fork a process that is confined like a session, and serves the first process over a socket."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from ...linux import syscalls

_signal: Any = importlib.import_module("_signal")  # without enums, which cost time
_SIG_DFL, _SIG_IGN = 0, 1
_OOM_SCORE = 1000  # more than that of a session
_FIRST_DESCRIPTOR, _LAST_DESCRIPTOR = 3, 0x7FFFFFFF  # besides the standard streams


class Confined(NamedTuple):
    """What a process has become: why it is not the user that was asked for, and its variables."""

    refusal: str = ""
    variables: dict[bytes, bytes] = {}


class Home(NamedTuple):
    """Where the processes of a box work, and as whom.

    folder        the work folder
    environment   the variables of commands
    confine       become a user, and apply the confinement of sessions
    user          "" for the user of the box
    has_users     it can be another one; `one_user` says why not
    temporary     the folders that are in memory
    """

    folder: str
    environment: dict[bytes, bytes]
    confine: Callable[[str], Confined]
    user: str = ""
    has_users: bool = False
    one_user: str = ""
    temporary: tuple[str, ...] = ()

    def path(self, path: str) -> str:
        """Return `path` from the root. It may be relative to the work folder."""
        return os.path.join(self.folder, path) if path else self.folder


Serve = Callable[[socket.socket, str, Confined], None]


def fork_confined(home: Home, kind: socket.SocketKind, serve: Serve) -> tuple[int, socket.socket]:
    """Fork a process that calls `serve` with a socket and the work folder, and ends then.

    Return its process ID and the other end of the socket. Raise `OSError`.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    with theirs:
        try:
            pid = syscalls.fork_without_hooks()
            if pid == 0:
                _run(home, theirs.fileno(), serve)
        except BaseException:
            ours.close()
            raise
    return pid, ours


def _run(home: Home, descriptor: int, serve: Serve) -> NoReturn:
    try:
        _raise_oom_score()
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)  # so that commands cannot look into it
        signal.set_wakeup_fd(-1)
        for number in range(1, signal.NSIG):
            if _signal.getsignal(number) not in (_SIG_DFL, None):
                with contextlib.suppress(OSError):
                    _signal.signal(number, _SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # what exceeds a limit is an error here
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.setsid()
        null = os.open("/dev/null", os.O_RDWR)
        for target in range(_FIRST_DESCRIPTOR):
            os.dup2(null, target)
        confined = home.confine(home.user)
        serve(socket.socket(fileno=_keep_only(descriptor)), home.folder, confined)
    finally:
        os._exit(1)


def _raise_oom_score() -> None:
    """Let the OOM killer pick this process and its commands before all else in the cell.

    Memory that is not in a process, such as memfd_create(2) makes, does not tell it whom to end.
    """
    # The file belongs to root in a process that cannot be looked into. In a sandbox, this one still
    # has capabilities, so commands cannot look into it meanwhile.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
    with contextlib.suppress(OSError):  # this kernel does not allow it
        syscalls.set_oom_score(_OOM_SCORE)


def _keep_only(descriptor: int) -> int:
    """Close all descriptors but the standard streams and `descriptor`. Return its new number."""
    os.dup2(descriptor, _FIRST_DESCRIPTOR, inheritable=False)
    first = _FIRST_DESCRIPTOR + 1
    try:
        syscalls.syscall(syscalls.CLOSE_RANGE, first, _LAST_DESCRIPTOR, 0, name="close_range")
    except OSError:  # a kernel without it
        for other in map(int, os.listdir("/proc/self/fd")):
            if other >= first:
                with contextlib.suppress(OSError):
                    os.close(other)
    return _FIRST_DESCRIPTOR
