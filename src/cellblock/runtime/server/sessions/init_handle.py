"""The first process of a session's cell, as the server sees it.

The handle sends it orders, measures what its cell uses, and knows the first processes of branches.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
from collections.abc import Callable

from ... import handshake
from ...linux import process_tree
from ...linux.credentials import CREDENTIALS_SPACE, enable_credentials, sender_pid
from ...linux.known_process import KnownProcess
from ...linux.retry import receive
from ...messages import INIT_REPORTS, Hello, InitOrder, OrderResult, ProcessExit
from ...packets import decode_packet, encode_packet
from ...spec import CellLimits
from ..cgroups import CellCgroups
from ..faults import describe
from ..interfaces import EventSource
from ..storage import SessionStorage, StorageMeter
from ..usage import UsageMeter, exceeded_cpu_limit

_MAX_EXITS = 1000  # that are remembered
_MAX_DESCRIPTORS = 16
_CPU_PRECISION = 0.03  # seconds: /proc counts in ticks of 10 ms


class SessionInitHandle:
    """The first process and the socket to it.

    `on_hello` is called when it is ready for orders, `on_exit` when a process of its cell has
    ended, `on_end` with the reason when the cell has ended or could not be made.
    """

    def __init__(
        self,
        loop: EventSource,
        name: str,
        cgroups: CellCgroups,
        on_hello: Callable[[], None],
        on_exit: Callable[[], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._loop, self._name, self._cgroups = loop, name, cgroups
        self._on_hello, self._on_exit, self._on_end = on_hello, on_exit, on_end
        self.pid = 0
        self.main_pid = 0  # of the process that runs the blocks
        self.has_namespaces = False  # of its own
        # Process ID in the cell: exit status, CPU seconds.
        self.exits: dict[int, tuple[int | None, float]] = {}
        # Descriptors of a branch's namespaces, which its process has to enter.
        self.namespaces: list[int] = []
        self.parent: SessionInitHandle | None = None
        self.branches: set[SessionInitHandle] = set()
        # The process that the parent's session forked as this branch's: its ID there and here.
        self._adopted_pid = self._adopted_inner_pid = 0
        self._main_session = 0  # the session of processes of the last main process
        self._child_lists: dict[int, process_tree.ChildList] = {}
        self._callbacks: list[Callable[[str], None]] = []
        self._process: KnownProcess | None = None
        self._usage: UsageMeter | None = None
        self._closed = False
        self._socket, self._peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            enable_credentials(self._socket)
            loop.register(self._socket.fileno(), self._on_packet)
        except BaseException:
            self.close()
            raise

    @property
    def peer_fd(self) -> int:
        """The first process's end of the socket. Pass it on, then call `close_peer`."""
        return self._peer.fileno()

    def close_peer(self) -> None:
        """Close our copy of the first process's end of the socket."""
        self._peer.close()

    def send_order(
        self,
        order: InitOrder,
        descriptors: list[int],
        on_answer: Callable[[str], None] | None = None,
    ) -> None:
        """Send an order. `on_answer` is called with the error, "" if it was carried out."""
        self.unpause()
        with contextlib.suppress(ConnectionError):  # `_on_packet` handles the end of the process
            socket.send_fds(self._socket, [encode_packet(order)], descriptors)
        self._callbacks.append(on_answer or (lambda _error: None))

    def unpause(self) -> None:
        """Continue the first process: in a container, user code can stop it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def _on_packet(self) -> None:
        room = socket.CMSG_SPACE(_MAX_DESCRIPTORS * 4) + CREDENTIALS_SPACE
        received = receive(self._socket, handshake.MAX_PACKET, room, socket.MSG_CMSG_CLOEXEC)
        if received is None:
            return
        data, ancillary = received
        if not data:
            self._loop.unregister(self._socket.fileno())  # it may have to stay open: see `close`
            self._on_end("the first process of the session's cell ended")
            return
        if data.startswith(handshake.ERROR):
            self._on_end(data[1:].decode(errors="replace"))
            return
        match message := decode_packet(data, *INIT_REPORTS):
            case ProcessExit():
                self._record_exit(message)
            case Hello():
                self._on_hello_packet(ancillary)
            case OrderResult() if not self.pid:
                self._on_end(message.error)
            case OrderResult():
                self._callbacks.pop(0)(message.error)

    def _record_exit(self, message: ProcessExit) -> None:
        for branch in self.branches:
            if branch._adopted_pid == message.pid:
                branch._record_exit(message._replace(pid=branch._adopted_inner_pid))
        self.exits[message.pid] = message.status, message.cpu
        if len(self.exits) > _MAX_EXITS:
            del self.exits[next(iter(self.exits))]
        self._on_exit()

    def _on_hello_packet(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        self.pid = sender_pid(ancillary)
        for _, kind, data in ancillary:
            if kind == socket.SCM_RIGHTS:
                self.namespaces += struct.unpack(f"{len(data) // 4}i", data)
        try:
            self._process = KnownProcess(self.pid)
            self._usage = UsageMeter(self._cgroups, self._name, self.pid)
            self._on_hello()
        except OSError as error:
            self._on_end(
                f"the first process of the session's cell could not be set up: {describe(error)}"
            )

    def close_namespaces(self) -> None:
        """Close the descriptors of a branch's namespaces, once its process has entered them."""
        for descriptor in self.namespaces:
            os.close(descriptor)
        self.namespaces = []

    def branch_pids(self) -> set[int]:
        """Return the process IDs of branches: of their first processes and their sessions."""
        return {pid for branch in self.branches for pid in (branch.pid, branch.main_pid)}

    def find_orphans(
        self, main_pid: int, others: set[int], *, spares_commands: bool = False
    ) -> list[int]:
        """Return the process IDs of the topmost processes that user code has left in the cell.

        That excludes `main_pid`, the `others`, and the processes of branches. `spares_commands`: of
        the children of the first process, it includes only those in the session of processes (see
        setsid) of the session's own process. The others are commands, or have left it on purpose.
        """
        known, ended = {main_pid, *others, *self.branch_pids()}, set[int]()
        while True:
            reparented = set(self._children_of(self.pid)) - known
            if spares_commands:
                reparented = {
                    pid for pid in reparented if process_tree.session_of(pid) == self._main_session
                }
            found = reparented | set(self._children_of(main_pid) if main_pid else ()) - known
            if not found:
                return []
            zombies = {pid for pid in found if process_tree.has_ended(pid)}
            if reparented or found != zombies:
                # Zombies of the first process count: until it has reaped them, the kernel's list of
                # its children may be incomplete.
                return [*(reparented | (found - zombies))]
            if zombies <= ended:
                return []
            # List once more: a process that ended during the listing may have left a child, which
            # is now a child of the first process.
            ended = zombies

    def find_child(self, main_pid: int, inner_pid: int, excluded: set[int]) -> int:
        """Return the child of `main_pid` whose process ID in the cell is `inner_pid`, or 0.

        The children in `excluded` are ignored.
        """
        # If the main process has ended, its children are now those of the first process.
        for pid in self._children_of(main_pid) + self._children_of(self.pid):
            if pid not in excluded and process_tree.pid_in_namespace(pid) == inner_pid:
                return pid
        return 0

    def _children_of(self, pid: int) -> list[int]:
        if pid not in self._child_lists:
            for other in [other for other in self._child_lists if other != self.pid]:
                self._child_lists.pop(other).close()
            self._child_lists[pid] = process_tree.ChildList(pid)
        return self._child_lists[pid].list()

    # resource usage

    def measure_main(self) -> None:
        """Measure what the process uses that runs the blocks, which has just started."""
        self._main_session = process_tree.session_of(self.main_pid)
        if self._usage is not None and self.main_pid:
            self._usage.track_process(self.main_pid)

    def add_process(self, pid: int) -> None:
        """Move a process to the control groups of this cell, where its forks start."""
        if self._usage is not None:
            self._usage.add_process(pid)

    def allow_forks(self, *, allowed: bool) -> None:
        """Let the cell's processes fork, or not, if control groups can prevent it."""
        if self._usage is not None:
            self._usage.allow_forks(allowed=allowed)

    def adopt_main(self, inner_pid: int) -> None:
        """Learn of the end of a branch's process from the first process of its parent."""
        self._adopted_pid = process_tree.pid_in_namespace(self.main_pid, above=1)
        self._adopted_inner_pid = inner_pid

    def _is_alone(self, main_pid: int, others: set[int]) -> bool:
        """Return True if the cell has only its own processes and the `others`."""
        children = {
            *self._children_of(self.pid),
            *(self._children_of(main_pid) if main_pid else ()),
        }
        return children <= {main_pid, *others}

    def start_block_usage(self, main_pid: int, others: set[int]) -> None:
        """Start to measure the next block. `others` are the checkpoints."""
        if self._usage is not None:
            self._usage.start_session_block(alone=self._is_alone(main_pid, others))

    def limit_that_ended(self, limits: CellLimits, cpu: float, status: int | None) -> str | None:
        """Return the limit that ended a block which used `cpu` seconds, or None.

        `status` is the exit status of the session's process. Where the kernel counts OOM kills for
        all cells together, one is attributed to this block if SIGKILL ended its process.
        """
        usage = self._usage
        killed = status is None or (
            os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        )
        if usage is not None and (usage.oom_kills() or (killed and usage.shared_oom_kills())):
            return "memory_bytes"
        return exceeded_cpu_limit(limits, cpu)

    def ran_out_of_memory(self) -> bool:
        """Return True if the OOM killer has ended a process since the last block or command.

        Also one of the session above it, whose cell this one is in.
        """
        usage = self._usage
        if usage is not None and (usage.oom_kills() or usage.shared_oom_kills()):
            return True
        return self.parent is not None and self.parent.ran_out_of_memory()

    def cpu_seconds(self, main_pid: int, others: set[int], reported: float) -> float:
        """Return the CPU time of the block, also that of children that nobody has waited for.

        `reported` is what the session's process says: exact, but without children that nobody has
        waited for, and with those of earlier blocks that somebody waits for now.
        """
        if self._usage is None:
            return reported
        if (counted := self._usage.cpu_seconds()) is not None:
            return counted or reported
        found = self._usage.session_cpu_seconds(alone=self._is_alone(main_pid, others))
        return found if abs(found - reported) > _CPU_PRECISION else reported

    def total_cpu_seconds(self) -> float | None:
        """Return the CPU time of all processes that the cell has had, None if it is not known."""
        return None if self._usage is None else self._usage.total_cpu_seconds()

    def peak_bytes(self) -> int:
        """Return the largest amount of memory that the block is known to have used."""
        return (
            0 if self._usage is None else self._usage.group_peak_bytes() or self._usage.peak_bytes
        )

    def exceeded_limit(self, limits: CellLimits, storage: StorageMeter) -> str | None:
        """Return the name of the limit that the running block exceeds, or None."""
        return None if self._usage is None else self._usage.exceeded_limit(limits, storage)

    def exceeded_in_all(
        self, limits: CellLimits, storage: SessionStorage, *, at_end: bool = False
    ) -> str | None:
        """Return the limit that the session exceeds with all that it has done, or None.

        `at_end`: a command has just ended.
        """
        if (usage := self._usage) is None:
            return None
        limit = storage.exceeded_limit(self._written_bytes, self._own_pids, at_end=at_end)
        return limit or (None if at_end else usage.exceeded_memory(limits))

    def _own_pids(self) -> list[int]:
        """Return all processes of the session: that of a branch may be a child of another cell."""
        assert self._usage is not None
        others = {pid for pid in self.branch_pids() if pid}
        pids = self._usage.own_pids(others)
        return pids if self.main_pid in pids or not self.main_pid else [*pids, self.main_pid]

    def _written_bytes(self) -> int:
        """Return what its processes have written, or 0 where that cannot be told.

        In a container, some are hidden, and those of a branch that ends become children of others.
        """
        if self._usage is None or not self.has_namespaces:
            return 0
        return self._usage.total_written_bytes(self._own_pids())

    def discount_from_parent(self) -> None:
        """Before a branch ends: do not count what it has written for the session above it."""
        above = self.parent and self.parent._usage
        if above and self._usage is not None:
            self._written_bytes()
            above.add_others_bytes(self._usage.living_bytes)

    # the end

    def close(self) -> None:
        """Close the socket, which makes the first process end with all of its cell.

        While branches live below the cell, the socket stays open.
        """
        self._closed = True
        for children in self._child_lists.values():
            children.close()
        self._child_lists.clear()
        if not self.branches and self._socket.fileno() >= 0:
            self._loop.unregister(self._socket.fileno())
            self._socket.close()
            self._peer.close()
            self.close_namespaces()

    def remove_if_ended(self) -> bool:
        """After `close`: remove the control groups once the cell has ended.

        Returns True when done.
        """
        if self.branches or not self._closed or not self._has_ended():
            return False
        if self._usage is not None and not self._usage.remove_cgroups():
            return False
        self._process = None
        if self.parent is not None:
            self.parent.branches.discard(self)
            if self.parent._closed:
                self.parent.close()
            self.parent = None
        return True

    def _has_ended(self) -> bool:
        return self._process is None or self._process.has_ended()

    def kill(self) -> None:
        """Kill the first process if it does not end."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
