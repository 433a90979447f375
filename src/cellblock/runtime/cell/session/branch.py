"""How a branch comes into being: a session, or a keeper of it, forks, and the fork goes on as a session elsewhere."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from ...linux import syscalls
from ..confinement import Confinement
from .fork_state import Frozen
from .init import Guard

_SPACES = (
    syscalls.CLONE_NEWUSER,
    syscalls.CLONE_NEWPID,
    syscalls.CLONE_NEWNS,
    syscalls.CLONE_NEWIPC,
    syscalls.CLONE_NEWNET,
)


class Reborn(BaseException):
    """In a process that is to go on as a session: unwinds the stack down to `Session.serve`.

    `streams`: it is a branch, and these are its output streams. `folder`: its work folder, where that is another.
    """

    def __init__(
        self,
        control: int,
        frozen: Frozen,
        streams: list[int] | None = None,
        *,
        keepers: set[int] | None = None,
        folder: str | None = None,
    ) -> None:
        super().__init__()
        self.control, self.frozen, self.streams, self.keepers = (
            control,
            frozen,
            streams,
            keepers or set(),
        )
        self.folder = folder


def bring_forth(
    order: dict[str, Any], descriptors: list[int], frozen: Frozen, let_go: Callable[[], None]
) -> dict[str, Any]:
    """Make a branch of this process. Raises `Reborn`, in the branch; `let_go` is called where nothing of ours is needed."""
    if "folder" in order:
        return _beside(descriptors[0], order["folder"], frozen, let_go)
    return _in_namespaces(descriptors, frozen)


def _in_namespaces(descriptors: list[int], frozen: Frozen) -> dict[str, Any]:
    """Make a branch in the cell whose namespaces, control stream and output streams are given.

    Nobody can move into a process namespace, only be born there; and who is born there of a father from outside becomes a
    child of somebody outside: hence three forks. What is to be done at forks is done at the last one, in the branch.
    """
    *spaces, control, out, err = descriptors
    streams = [out, err]
    # Where the network is the machine's, the branch is in it already, and may not enter it.
    kinds = _SPACES[:-1] if _is_own_network(spaces[-1]) else _SPACES
    between = syscalls.fork_untouched()
    if between == 0:
        try:
            for space, kind in zip(spaces, kinds, strict=False):
                syscalls.setns(space, kind)
            close_all(spaces)
            if syscalls.fork_untouched() != 0 or os.fork() != 0:
                os._exit(0)
        except OSError as error:
            os.write(2, f"{error}\n".encode())
            os._exit(1)
        raise Reborn(control, frozen, streams)
    close_all(descriptors)
    _, status = os.waitpid(between, 0)
    return {"error": "the fork could not enter its own cell"} if status else {}


def _is_own_network(space: int) -> bool:
    return os.path.samestat(os.fstat(space), os.stat("/proc/self/ns/net"))


def close_all(descriptors: list[int]) -> None:
    """Close `descriptors`."""
    for descriptor in descriptors:
        os.close(descriptor)


# without namespaces


def _beside(door: int, folder: str, frozen: Frozen, let_go: Callable[[], None]) -> dict[str, Any]:
    """Make the guard of a branch, which speaks to the server through `door`, and will fork the branch itself."""
    between = syscalls.fork_untouched()
    if between == 0:
        try:
            if (
                syscalls.fork_untouched() != 0
            ):  # orphaned, it is a child of the guard of its session, and no child of code's
                os._exit(0)
        except OSError:
            os._exit(1)
        let_go()
        _BranchGuard(door, folder, frozen).serve()
    os.close(door)
    _, status = os.waitpid(between, 0)
    return {"error": "the branch's first process could not be made"} if status else {}


class _BranchGuard(Guard):
    """The first process of a branch's cell where nobody can be born into one: a fork of the session that the branch is of.

    It runs nothing but what guards do. The sessions that it starts are what it was itself when the branch was made.
    """

    def __init__(self, door: int, folder: str, frozen: Frozen) -> None:
        super().__init__(socket.socket(fileno=door), {"namespaces": False}, Confinement())
        self._folder, self._frozen = folder, frozen
        self._collects, self._on_child = gc.isenabled(), signal.getsignal(signal.SIGCHLD)
        gc.disable()  # what is left of code's objects must not be run here
        sys.settrace(None)
        sys.setprofile(None)
        with contextlib.suppress(PermissionError):  # a copy leads a group of its own already
            os.setsid()
        frozen.be_deaf(but={signal.SIGCHLD})
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)  # what it uses is to be measured
        _be_last_to_die()

    def serve(self) -> NoReturn:
        """Do as told until the server lets go. Raises `Reborn`, in the sessions that it starts."""
        try:
            self._say({"hello": True})
            super().serve()
        except Exception:
            os._exit(1)

    def _start(self, descriptors: list[int], *, entered: bool) -> None:
        if os.fork() != 0:
            return
        signal.set_wakeup_fd(-1)
        signal.signal(
            signal.SIGCHLD, self._on_child if self._on_child is not None else signal.SIG_DFL
        )
        self._link.close()
        close_all([*self._wakers])
        if self._collects:
            gc.enable()
        control, *streams = map(os.dup, descriptors)  # whoever took the order closes the others
        raise Reborn(control, self._frozen, streams, folder=self._folder)


def _be_last_to_die() -> None:
    with contextlib.suppress(OSError):
        syscalls.adjust_memory_score(0)
