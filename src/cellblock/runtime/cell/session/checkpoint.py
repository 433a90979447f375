"""A checkpoint: a frozen fork of a session, in a separate process.

It waits on its own control stream for orders: `resume` continues the session from it, `fork`
forks branches from it, and `save` sends its variables to a new session, for a copy that lacks
threads. A copy of the same state remains after each order, so there is no limit to the number of
orders.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import signal
from collections.abc import Callable
from typing import Any, NoReturn

from ...linux import syscalls
from ...packets import decode_packet
from ...session_orders import (
    CHECKPOINT_ORDERS,
    CheckpointOrder,
    ContinueSession,
    ForkBranches,
    SaveVariables,
)
from .branch import BecomeSession, fork_branches
from .control import Control
from .fork_state import ForkState

# The OOM killer ends the session before the checkpoints that can restore it.
_RAISED_OOM_SCORE = 700

_hide_from_cell = syscalls.PreparedCall("prctl", "prctl", syscalls.PR_SET_DUMPABLE, 0, 0, 0, 0)
# `_signal` without the enums of `signal`, whose use would write to memory in each fork.
_set_signal: Callable[[int, Any], Any] = importlib.import_module("_signal").signal
_show_to_cell = syscalls.PreparedCall("prctl", "prctl", syscalls.PR_SET_DUMPABLE, 1, 0, 0, 0)


class CheckpointProcess:
    """The checkpoint, as its own process runs it."""

    def __init__(
        self,
        descriptor: int,
        fork_state: ForkState,
        release_session: Callable[[], None],
        fork_saver: Callable[[int], None],
    ) -> None:
        """Wait for the first order, then close what belongs to the session by `release_session`.

        `fork_saver` forks a process that sends the variables to a descriptor.
        """
        self._fork_state, self._fork_saver = fork_state, fork_saver
        fork_state.release_pipes()
        _wait_for_order(descriptor)
        release_session()
        self._control = Control(descriptor)

    def serve(self) -> NoReturn:
        """Carry out orders until the stream ends. Raise `BecomeSession` in a fork."""
        try:
            while True:
                frame, descriptors = self._control.receive()
                order: CheckpointOrder = decode_packet(frame.payload, *CHECKPOINT_ORDERS)
                match order:
                    case ContinueSession():
                        self._resume(*descriptors)
                    case SaveVariables():
                        _set_signal(int(signal.SIGCHLD), int(signal.SIG_IGN))  # nobody waits
                        self._fork_saver(descriptors[0])
                        os.close(descriptors[0])
                    case ForkBranches():
                        release = self._control.close
                        answer = fork_branches(descriptors[0], self._fork_state, release)
                        self._control.send_frame(answer.encode(frame.run))
        except BecomeSession:
            self._control.close()
            raise
        except BaseException:
            os._exit(1)

    def _resume(self, session_fd: int, checkpoint_fd: int) -> None:
        """Become the session, served on `session_fd`.

        A fork of this process is the checkpoint from now on, served on `checkpoint_fd`.
        """
        pid = syscalls.fork_without_hooks()
        if pid == 0:
            os.close(session_fd)
            self._control.close()
            _wait_for_order(checkpoint_fd)
            self._control = Control(checkpoint_fd)
            return
        os.close(checkpoint_fd)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        raise BecomeSession(session_fd, self._fork_state, checkpoints={pid})


def fork_hidden(fork_state: ForkState) -> int:
    """Fork a checkpoint and return what `os.fork` returns. Raise `OSError`.

    No process of the cell can inspect the fork, not even at its start. It receives no signals but
    SIGKILL and SIGSTOP until it becomes a session again. The OOM killer spares it longer than the
    session.
    """
    _set_oom_score(0)  # earlier than that: the file of a hidden process belongs to root
    _hide_from_cell()
    fork_state.block_signals()
    pid = -1
    try:
        pid = syscalls.fork_without_hooks()
    finally:
        if pid != 0:
            fork_state.restore_signals()
            _show_to_cell()
            raise_oom_score()
    return pid


def _wait_for_order(descriptor: int) -> None:
    """In a fork: wait for an order and write to as little memory as possible before.

    Each page that is written to has to be copied.
    """
    orders = select.poll()
    orders.register(descriptor, select.POLLIN)
    orders.poll()


def raise_oom_score() -> None:
    """Make this process the first of its cell that the OOM killer ends."""
    _set_oom_score(_RAISED_OOM_SCORE)


def _set_oom_score(value: int) -> None:
    try:
        syscalls.set_oom_score(value)
    except OSError:
        pass  # not permitted here
