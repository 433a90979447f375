"""Fork a branch from a session or from one of its checkpoints.

The fork continues as a session in another cell.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from ...linux import syscalls
from ...messages import Answer, StartSession
from .fork_state import ForkState
from .init import SessionInit

_ADOPTION_SECONDS, _POLL_INTERVAL = 5.0, 0.0002
_NAMESPACE_KINDS = (
    syscalls.CLONE_NEWUSER,
    syscalls.CLONE_NEWPID,
    syscalls.CLONE_NEWNS,
    syscalls.CLONE_NEWIPC,
    syscalls.CLONE_NEWNET,
)


class BecomeSession(BaseException):
    """Unwinds the stack down to `Session.serve`, in a fork that continues as a session.

    `control` is the descriptor of its control stream, `checkpoints` the process IDs of its
    checkpoints. `streams` are the output streams of a branch, None if the fork is not a branch.
    `folder` is the work folder of the branch if its path differs from that of the session, `saved`
    the descriptor from which it loads other variables than those of the fork.
    """

    def __init__(
        self,
        control: int,
        fork_state: ForkState,
        streams: list[int] | None = None,
        *,
        checkpoints: set[int] | None = None,
        folder: str | None = None,
        saved: int | None = None,
    ) -> None:
        super().__init__()
        self.saved = saved
        self.control, self.fork_state = control, fork_state
        self.streams, self.folder = streams, folder
        self.checkpoints = checkpoints or set[int]()


def fork_branch(
    order: dict[str, Any],
    descriptors: list[int],
    fork_state: ForkState,
    release_session: Callable[[], None],
) -> Answer:
    """Fork a branch from this process and return the answer to `order`.

    Raise `BecomeSession` in the branch. `release_session` closes what belongs to this session; it
    is called in a fork that does not become a session itself.
    """
    if "folder" in order:
        return _fork_branch_in_container(
            descriptors[0], order["folder"], fork_state, release_session
        )
    return _fork_into_namespaces(descriptors, fork_state)


def _fork_into_namespaces(descriptors: list[int], fork_state: ForkState) -> Answer:
    """Fork a branch into a cell, given its namespaces, control stream and output streams.

    A process cannot enter a process namespace itself; only its children start there. The second
    fork does, and the third one loses its parent, so that the first process of the cell adopts it.
    Only the last fork runs the fork handlers of Python.
    """
    *namespaces, control, out, err = descriptors
    streams = [out, err]
    # Without its own network namespace the cell shares ours, which cannot be entered again.
    kinds = _NAMESPACE_KINDS[:-1] if _is_own_network(namespaces[-1]) else _NAMESPACE_KINDS
    between = syscalls.fork_without_hooks()
    if between == 0:
        try:
            for namespace, kind in zip(namespaces, kinds, strict=False):
                syscalls.setns(namespace, kind)
            close_all(namespaces)
            if syscalls.fork_without_hooks() != 0:
                os._exit(0)
            parent = os.getpid()
            if os.fork() != 0:
                os._exit(0)
            _wait_for_adoption(parent)
        except OSError as error:
            os._exit(error.errno or 1)
        raise BecomeSession(control, fork_state, streams)
    close_all(descriptors)
    _, status = os.waitpid(between, 0)
    if code := os.waitstatus_to_exitcode(status):
        why = os.strerror(code) if code > 0 else f"signal {-code}"
        return Answer(error=f"the fork could not enter its own cell: {why}")
    return Answer()


def _wait_for_adoption(parent: int) -> None:
    """Wait until the first process of the cell has adopted this one.

    Its `parent` can have the same process ID as the session in its own cell. Numba's threads end a
    process whose parent has used them.
    """
    deadline = time.monotonic() + _ADOPTION_SECONDS
    while os.getppid() == parent and time.monotonic() < deadline:
        time.sleep(_POLL_INTERVAL)


def _is_own_network(namespace: int) -> bool:
    return os.path.samestat(os.fstat(namespace), os.stat("/proc/self/ns/net"))


def close_all(descriptors: list[int]) -> None:
    """Close `descriptors`."""
    for descriptor in descriptors:
        os.close(descriptor)


# without namespaces


def _fork_branch_in_container(
    socket_fd: int,
    folder: str,
    fork_state: ForkState,
    release_session: Callable[[], None],
) -> Answer:
    """Fork the first process of a branch, which serves `socket_fd` and forks the branch."""
    between = syscalls.fork_without_hooks()
    if between == 0:
        try:
            # As an orphan it becomes a child of the session's first process, not of user code.
            if syscalls.fork_without_hooks() != 0:
                os._exit(0)
        except OSError:
            os._exit(1)
        release_session()
        _serve_branch_init(socket_fd, folder, fork_state)
    os.close(socket_fd)
    _, status = os.waitpid(between, 0)
    return Answer(error="the branch's first process could not be made" if status else None)


def _serve_branch_init(socket_fd: int, folder: str, fork_state: ForkState) -> NoReturn:
    """Run as the first process of a branch's cell, in a fork of the session.

    Without namespaces, no other process could fork the branch later with the same memory. This one
    runs no user code. The sessions that it forks continue from the state at the time of the branch:
    they raise `BecomeSession`.
    """
    gc_was_enabled, sigchld_handler = gc.isenabled(), signal.getsignal(signal.SIGCHLD)

    def fork_session(init: SessionInit, descriptors: list[int], _order: StartSession) -> None:
        if os.fork() != 0:
            return
        init.release()
        handler = sigchld_handler if sigchld_handler is not None else signal.SIG_DFL
        signal.signal(signal.SIGCHLD, handler)
        if gc_was_enabled:
            gc.enable()
        control, out, err, *saved = map(os.dup, descriptors)  # `SessionInit` closes the originals
        raise BecomeSession(
            control, fork_state, [out, err], folder=folder, saved=saved[0] if saved else None
        )

    init = SessionInit(socket.socket(fileno=socket_fd), {"namespaces": False}, fork_session)
    gc.disable()  # finalizers of user code must not run here
    sys.settrace(None)
    sys.setprofile(None)
    with contextlib.suppress(PermissionError):  # a checkpoint already leads its own group
        os.setsid()
    fork_state.block_signals(except_for={signal.SIGCHLD})
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)  # so that the server can read its usage
    _lower_oom_score()
    try:
        init.send_hello()
        init.serve()
    except Exception:
        os._exit(1)


def _lower_oom_score() -> None:
    with contextlib.suppress(OSError):
        syscalls.set_oom_score(0)
