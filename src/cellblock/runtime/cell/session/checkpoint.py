"""A frozen copy of a session, in a process of its own: how it is made, and what it does.

It does nothing but wait on a control stream of its own until it is told to bring forth the session again (``resume``), or a
branch of it in another cell (``branch``). There is a copy of the same state afterwards: both can be done as often as wanted.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Callable
from typing import NoReturn

from ... import protocol
from ...linux import syscalls
from . import fork_state
from .branch import Reborn, bring_forth
from .control import Control

_EASY_TO_KILL = 700  # for the kernel that runs out of memory: rather the session than what it can be restored from

_hide_from_others = syscalls.Call("prctl", "prctl", syscalls.PR_SET_DUMPABLE, 0, 0, 0, 0)
_show_to_others = syscalls.Call("prctl", "prctl", syscalls.PR_SET_DUMPABLE, 1, 0, 0, 0)


class Keeper:
    """The copy, in its process."""

    def __init__(
        self, descriptor: int, frozen: fork_state.Frozen, let_go: Callable[[], None]
    ) -> None:
        """Wait until it is needed; then `let_go` is called, which lets go of what is the session's."""
        self._frozen = frozen
        _be_still(descriptor)
        let_go()
        self._control = Control(descriptor)

    def serve(self) -> NoReturn:
        """Wait for orders. Raises `Reborn`, in a fork."""
        try:
            while True:
                frame, descriptors = self._control.receive()
                if frame.json()["op"] == "resume":
                    self._resume(*descriptors)
                else:
                    answer = bring_forth(
                        frame.json(), descriptors, self._frozen, self._control.close
                    )
                    self._control.send(protocol.ANSWER, frame.run, answer)
        except Reborn:
            self._control.close()
            raise
        except BaseException:
            os._exit(1)

    def _resume(self, session: int, keeper: int) -> None:
        """Go on as the session, on the first descriptor; a fork of this process is the keeper from now on, on the second."""
        pid = syscalls.fork_untouched()
        if pid == 0:
            os.close(session)
            self._control.close()
            _be_still(keeper)
            self._control = Control(keeper)
            return
        os.close(keeper)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        raise Reborn(session, self._frozen, keepers={pid})


def fork_hidden(frozen: fork_state.Frozen) -> int:
    """Fork, and give what `fork` gives.

    Nobody in the cell sees the copy, from its first moment; it hears no signal but SIGKILL and SIGSTOP, until it is a session
    again; and it does not end as easily as its session. Raises `OSError`.
    """
    _hide_from_others()
    _adjust_memory_score(0)
    frozen.be_deaf()
    pid = -1
    try:
        pid = syscalls.fork_untouched()
    finally:
        if pid != 0:
            frozen.hear()
            be_first_to_die()
            _show_to_others()
    return pid


def _be_still(descriptor: int) -> None:
    """In a copy: wait for its first order, and do nothing else before: each page that is written to has to be copied."""
    orders = select.poll()
    orders.register(descriptor, select.POLLIN)
    orders.poll()


def be_first_to_die() -> None:
    """Of all processes of the cell, be the one that the kernel ends for want of memory."""
    _adjust_memory_score(_EASY_TO_KILL)


def _adjust_memory_score(value: int) -> None:
    try:
        syscalls.adjust_memory_score(value)
    except OSError:
        pass  # not to be changed here
