"""The cell that a live session is in, as the server sees it: its guard, its measure, and the cells of its branches."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
from collections.abc import Callable
from typing import Any

from ...cell import init
from ...linux import process_tree
from ...linux.credentials import ROOM, ask_for_sender, sender
from ...linux.pidfd import Hold
from ..cgroups import Groups
from ..interfaces import Watcher
from ..usage import Meter, over_cpu

_DEATHS = 1000  # ends that are remembered
_DESCRIPTORS = 16


class House:
    """One guard and the socket to it.

    `on_hello`: it waits for orders. `on_death`: a process has ended. `on_end`: the cell is gone, or never came, for a reason.
    """

    def __init__(
        self,
        loop: Watcher,
        name: str,
        groups: Groups,
        on_hello: Callable[[], None],
        on_death: Callable[[], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._loop, self._name, self._groups = loop, name, groups
        self.on_hello, self._on_death, self._on_end = on_hello, on_death, on_end
        self.pid = self.main = 0  # the guard; the process that runs the blocks
        self.deaths: dict[
            int, tuple[int | None, float]
        ] = {}  # process id in the cell: status, CPU seconds
        self.spaces: list[int] = []  # of a branch: the namespaces that its process has to come into
        self.parent: House | None = None
        self.branches: set[House] = set()
        self._watched: dict[int, process_tree.Children] = {}
        self._answers: list[Callable[[dict[str, Any]], None]] = []
        self._hold: Hold | None = None
        self._meter: Meter | None = None
        self._closed = False
        self._link, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ask_for_sender(self._link)
        loop.watch(self._link.fileno(), self._on_news)

    @property
    def door(self) -> int:
        """The guard's end of the socket, to be sent to it and then closed with `shown_in`."""
        return self._theirs.fileno()

    def shown_in(self) -> None:
        """Let go of the guard's end: the guard has it."""
        self._theirs.close()

    def order(
        self,
        order: dict[str, Any],
        descriptors: list[int],
        then: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        """Give the guard an order; `then` is called with its answer."""
        self._answers.append(then or (lambda _answer: None))
        with contextlib.suppress(OSError):  # its end is told of by itself
            socket.send_fds(self._link, [json.dumps(order).encode()], descriptors)

    def _on_news(self) -> None:
        room = socket.CMSG_SPACE(_DESCRIPTORS * 4) + ROOM
        try:
            data, ancillary, _, _ = self._link.recvmsg(init.PACKET, room, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            data, ancillary = b"", []
        if not data:
            self._on_end("the first process of the session's cell ended")
            return
        news = json.loads(data)
        if "died" in news:
            self._note_death(news)
        elif "hello" in news:
            self._admit(ancillary)
        elif not self.pid:
            self._on_end(str(news.get("error")))
        else:
            self._answers.pop(0)(news)

    def _note_death(self, news: dict[str, Any]) -> None:
        self.deaths[news["died"]] = (news["status"], news["cpu"])
        if len(self.deaths) > _DEATHS:
            del self.deaths[next(iter(self.deaths))]
        self._on_death()

    def _admit(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        self.pid = sender(ancillary)
        for _, kind, data in ancillary:
            if kind == socket.SCM_RIGHTS:
                self.spaces += struct.unpack(f"{len(data) // 4}i", data)
        # A process needs some 10 ms to come into a control group (a grace period of the kernel's). The session's must be
        # born in it; that of a branch comes from elsewhere in any case, and is on its way meanwhile.
        steps = (
            (self._measure, self.on_hello)
            if self.parent is None
            else (self.on_hello, self._measure)
        )
        try:
            self._hold = Hold(self.pid)
            for step in steps:
                step()
        except OSError as error:
            self._on_end(f"a cell could not be admitted: {error}")

    def _measure(self) -> None:
        self._meter = Meter(self._groups, self._name, self.pid)

    def let_go_of_spaces(self) -> None:
        """The branch's process has come: nobody else is to."""
        for descriptor in self.spaces:
            os.close(descriptor)
        self.spaces = []

    def strays(self, main: int, others: set[int]) -> list[int]:
        """List the cell's topmost processes besides the session's, `main`, the `others`, and the guards of its branches.

        Nor those that have brought forth a branch's process, and are about to end: who ended them would end that as well.
        """
        known, ended = {main, *others, *(branch.pid for branch in self.branches)}, set[int]()
        while True:
            orphans = set(self._children_of(self.pid)) - known
            found = orphans | set(self._children_of(main) if main else ()) - known
            if not found:
                return []
            zombies = {pid for pid in found if process_tree.is_zombie(pid)}
            if orphans or found != zombies:
                born = {branch.main for branch in self.branches}
                # With zombies of the guard: while it clears them away, the kernel's list of its children may be incomplete.
                return [
                    pid
                    for pid in orphans | (found - zombies)
                    if born.isdisjoint(process_tree.children(pid))
                ]
            if zombies <= ended:
                return []
            ended = zombies  # one that lived when it was listed may have left a child, which is the guard's now

    def child(self, main: int, inside: int, besides: set[int]) -> int:
        """Give that child of `main`, `besides` some, whose process id in the cell is `inside`; 0: there is none."""
        for pid in self._children_of(main) + self._children_of(
            self.pid
        ):  # whose they become when it has ended meanwhile
            if pid not in besides and process_tree.number_inside(pid) == inside:
                return pid
        return 0

    def _children_of(self, pid: int) -> list[int]:
        if pid not in self._watched:
            for other in [other for other in self._watched if other != self.pid]:
                self._watched.pop(other).close()
            self._watched[pid] = process_tree.Children(pid)
        return self._watched[pid].list()

    # what is used

    def admit(self, pid: int) -> None:
        """Count process `pid`, which may have been forked in another cell, as the one that runs the blocks."""
        if self._meter is None:
            return
        self._meter.follow(pid)
        if self.parent is not None:
            with contextlib.suppress(OSError):  # ended meanwhile
                self._meter.admit(pid)

    def begin(self, *, alone: bool) -> None:
        """Count from here: the next block's share begins. `alone`: no process but the session's own lives on."""
        if self._meter is not None:
            self._meter.begin_among_the_living(alone=alone)

    def was_over(self, limits: dict[str, Any], cpu: float, status: int | None) -> str | None:
        """Name the limit that a block which used `cpu` seconds of that was over; `status` is that of its own process.

        Where SIGKILL ended that, a kill that the kernel counts for all cells together is taken for this one.
        """
        meter = self._meter
        killed = status is None or (
            os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        )
        if meter is not None and (meter.oom_kills() or (killed and meter.shared_oom_kills())):
            return "memory_bytes"
        return over_cpu(limits, cpu)

    def cpu_seconds(self) -> float | None:
        """Give the CPU time of the block, where a control group counts it."""
        return None if self._meter is None else self._meter.cpu_seconds()

    def peak_bytes(self) -> int:
        """Give the most memory that the block has held, as far as that is known."""
        return (
            0 if self._meter is None else self._meter.group_peak_bytes() or self._meter.peak_bytes
        )

    def exceeded(self, limits: dict[str, Any]) -> str | None:
        """Name the limit that the block is over, if any."""
        return None if self._meter is None else self._meter.exceeded(limits)

    # the end

    def close(self) -> None:
        """Let go of the guard, which ends with all of its cell; not while branches live below it."""
        self._closed = True
        for children in self._watched.values():
            children.close()
        self._watched.clear()
        if not self.branches and self._link.fileno() >= 0:
            self._loop.forget(self._link.fileno())
            self._link.close()
            self._theirs.close()
            self.let_go_of_spaces()

    def gone(self) -> bool:
        """Tell whether, after `close`, the cell has ended and its control groups are removed."""
        if self.branches or not self._closed or not self._has_ended():
            return False
        if self._meter is not None and not self._meter.remove():
            return False
        if self._hold is not None:
            self._hold.close()
            self._hold = None
        if self.parent is not None:
            self.parent.branches.discard(self)
            if self.parent._closed:
                self.parent.close()
            self.parent = None
        return True

    def _has_ended(self) -> bool:
        return self._hold is None or self._hold.has_ended()

    def kill(self) -> None:
        """End the cell from outside, when its guard does not."""
        if self._hold is not None:
            self._hold.send(signal.SIGKILL)
