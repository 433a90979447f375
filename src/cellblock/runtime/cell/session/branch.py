"""Fork branches from a session or from one of its checkpoints.

Each fork continues as a session in another cell.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import NoReturn

from ...linux import syscalls
from ...messages import Answer, StartSession
from ...spec import ZygoteSpec
from .fork_helper import close_all, helper_orders, reporting_errors
from .fork_state import ForkState
from .init import SessionInit

_NAMESPACE_KINDS = (  # besides that of users
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


def fork_branches(
    link_fd: int, fork_state: ForkState, release_session: Callable[[], None]
) -> Answer:
    """Fork a helper, which forks a branch for each order that it receives, and wait for its end.

    Raise `BecomeSession` in a branch. `release_session` closes what belongs to this session; it is
    called in a fork that does not become a session itself.
    """
    helper = syscalls.fork_without_hooks()
    if helper == 0:
        with socket.socket(fileno=link_fd) as link, reporting_errors(link):
            _serve_orders(link, fork_state, release_session)
        os._exit(0)
    os.close(link_fd)
    _, status = os.waitpid(helper, 0)
    return Answer(error="the process that forks branches has failed" if status else None)


def _serve_orders(
    link: socket.socket, fork_state: ForkState, release_session: Callable[[], None]
) -> None:
    """Fork a branch for each order.

    A process cannot enter a process namespace itself; only its children start there. Their parent
    is outside of that. When it has ended, the first process of the session adopts them.
    """
    own_network, is_first = os.stat("/proc/self/ns/net"), True
    for order, descriptors in helper_orders(link):
        if is_first:
            if not order.folder:  # all branches are in the same one
                syscalls.setns(descriptors[0], syscalls.CLONE_NEWUSER)
            for capability in range(syscalls.CAP_LAST + 1):
                syscalls.drop_from_bounding_set(capability)
            is_first = False
        if order.folder:
            if syscalls.fork_without_hooks() == 0:
                link.close()
                release_session()
                _serve_branch_init(descriptors[0], order.folder, fork_state)
            continue
        *namespaces, control, out, err = descriptors
        # Without its own network namespace the cell shares ours, which cannot be entered again.
        is_shared = os.path.samestat(os.fstat(namespaces[-1]), own_network)
        for namespace, kind in zip(
            namespaces[1:], _NAMESPACE_KINDS[: -1 if is_shared else None], strict=False
        ):
            syscalls.setns(namespace, kind)
        if os.fork() == 0:
            link.close()
            close_all(namespaces)
            raise BecomeSession(control, fork_state, [out, err])


# without namespaces


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

    link, spec = socket.socket(fileno=socket_fd), ZygoteSpec(cwd=folder)
    init = SessionInit(link, spec, fork_session, lambda _user: None)  # it is confined already
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
