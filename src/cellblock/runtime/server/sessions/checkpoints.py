"""The checkpoints of one session, as the server sees them.

Each checkpoint is a process that was forked from the session's process and waits for orders. The
*rollback* checkpoint is made before each block, to restore the session if the block ends its
process. The *named* checkpoints are those that a user asked for.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from collections.abc import Callable

from ... import protocol
from ...linux.process_tree import is_ending
from ...messages import Answer
from ...packets import encode_packet
from ...session_orders import (
    CheckpointOrder,
    ContinueSession,
    MakeRollbackCheckpoint,
    SaveVariables,
)
from ..faults import describe
from ..interfaces import EventSource
from .channel import Channel

# Seconds for which an ended checkpoint may remain a zombie. To check that it is one would delay the
# end of each block. Its process ID is not used again within that time.
_ZOMBIE_SECONDS = 0.02


class CheckpointHandle:
    """A checkpoint that was made after so many `blocks`. `on_change` is called when it ends."""

    def __init__(self, loop: EventSource, blocks: int, on_change: Callable[[], None]) -> None:
        self.blocks = blocks
        self.by_value = (
            False  # whether it lacks threads, so that only its variables can be restored
        )
        self._dropped = False
        self.zombie_until = 0.0
        self._on_change = on_change
        self.channel = Channel(loop, self._on_frame, on_change, has_pidfd=False)

    @property
    def alive(self) -> bool:
        """Whether the session can still be resumed from it."""
        return not self._dropped and not self.channel.has_ended()

    @property
    def is_resolved(self) -> bool:
        """Whether its process ID is known, or that it has none."""
        return self.channel.pid != 0 or not self.alive

    def set_pid(self, pid: int) -> None:
        """Set the process ID that the session reported. 0 means that there is no such process."""
        if pid == 0:
            self.drop()
            return
        self.channel.set_pid(pid)

    def _on_frame(self, _frame: protocol.Frame) -> None:
        """Ignore its answer: the process that it forks reports itself."""

    def resume(self, loop: EventSource, session_channel: Channel) -> CheckpointHandle:
        """Resume the session from it, served by `session_channel`.

        Returns the successor: a checkpoint of the same state that replaces this one.
        """
        successor = CheckpointHandle(loop, self.blocks, self._on_change)
        try:
            self.send_order(ContinueSession(), [session_channel.peer_fd, successor.channel.peer_fd])
        except BaseException:
            successor.channel.close()
            raise
        session_channel.close_peer()
        successor.channel.close_peer()
        self.channel.close()
        return successor

    def send_variables(self) -> socket.socket:
        """Make it send its variables. Return the socket from which a new session reads them."""
        reader, writer = socket.socketpair()
        with writer:
            self.send_order(SaveVariables(), [writer.fileno()])
        return reader

    def send_order(self, order: CheckpointOrder, descriptors: list[int]) -> None:
        """Send an order that makes it fork a process."""
        self.channel.signal(signal.SIGCONT)  # user code may have stopped it
        self.channel.send(
            protocol.encode(protocol.SESSION_REQUEST, 0, encode_packet(order)), descriptors
        )

    def drop(self) -> None:
        """Kill it. Its process still counts as a checkpoint until it is gone."""
        self._dropped = True
        self.zombie_until = time.monotonic() + _ZOMBIE_SECONDS
        if self.channel.pid:
            with contextlib.suppress(OSError):
                self.channel.kill()
                return
        self.channel.close()  # then it exits: its stream ends


class CheckpointSet:
    """All checkpoints of one session.

    `on_change` is called when one of them has ended. `obstacles` describes what prevented the last
    rollback checkpoint, `failure` what failed when it was made.
    """

    def __init__(self, loop: EventSource, on_change: Callable[[], None]) -> None:
        self._loop, self._on_change = loop, on_change
        self._rollback: CheckpointHandle | None = None
        self._pending_rollback: CheckpointHandle | None = None  # replaces `_rollback` once made
        self._pending_named: CheckpointHandle | None = None
        self._dropped: list[CheckpointHandle] = []
        self._are_resolved = True
        self.named: dict[str, CheckpointHandle] = {}
        self.obstacles: tuple[str, ...] = ()
        self.failure = ""
        self._is_failure_reported = False

    def handles(self) -> list[CheckpointHandle]:
        """Return all checkpoints, pending ones included."""
        unnamed = (self._rollback, self._pending_rollback, self._pending_named)
        return [handle for handle in (*unnamed, *self.named.values()) if handle is not None]

    def pids(self) -> set[int]:
        """Return the process IDs of all checkpoints, and of dropped ones that may not be gone."""
        if (
            self._rollback is None
            and not self._dropped
            and not self.named
            and self._pending_named is self._pending_rollback is None
        ):
            return set()
        now = time.monotonic()
        self._dropped = [
            handle
            for handle in self._dropped
            if now < handle.zombie_until or not handle.channel.has_ended()
        ]
        return {handle.channel.pid for handle in (*self.handles(), *self._dropped)}

    def _discard(self, handle: CheckpointHandle) -> None:
        handle.drop()
        self._dropped.append(handle)

    @property
    def is_resolved(self) -> bool:
        """Whether every checkpoint's process ID is known, or that it has none."""
        self._are_resolved = self._are_resolved or all(
            [handle.is_resolved for handle in self.handles()]
        )
        return self._are_resolved

    def assign_pid(self, pid: int) -> None:
        """Set the process ID of the first checkpoint without one. 0 means that it was not made."""
        for handle in self.handles():
            if not handle.is_resolved:
                handle.set_pid(pid)
                return

    def discard_unresolved(self) -> None:
        """Drop the pending checkpoints: the process that was to make them has ended."""
        while not self.is_resolved:
            self.assign_pid(0)
        self._pending_rollback = None

    # the rollback checkpoint

    @property
    def rollback(self) -> CheckpointHandle | None:
        """The checkpoint to restore after a block has ended the session's process, if any."""
        return self._rollback if self._rollback is not None and self._rollback.alive else None

    def begin_rollback(self, main: Channel, blocks: int) -> None:
        """Make the session's process fork the next one. Pass its answer to `finish_rollback`.

        A fault is a `failure`: the session keeps the checkpoint that it has.
        """
        if self._pending_rollback is not None:
            return
        packet = encode_packet(MakeRollbackCheckpoint())
        frame = protocol.encode(protocol.SESSION_REQUEST, 0, packet)
        try:
            self._pending_rollback = self._request(main, frame, blocks)
        except (OSError, MemoryError) as error:
            self.failure = describe(error)

    def _request(self, main: Channel, frame: bytes, blocks: int) -> CheckpointHandle:
        handle = CheckpointHandle(self._loop, blocks, self._on_change)
        try:
            main.send(frame, [handle.channel.peer_fd])
        except BaseException:
            handle.channel.close()
            raise
        handle.channel.close_peer()
        self._are_resolved = False
        return handle

    def finish_rollback(self, answer: Answer) -> None:
        """Replace the rollback checkpoint, unless `answer` says that none was made."""
        handle, self._pending_rollback = self._pending_rollback, None
        self.obstacles, self.failure = answer.refused or (), answer.error or ""
        self._is_failure_reported = self._is_failure_reported and bool(self.failure)
        if handle is None:
            return
        if answer.has_failed:
            self._discard(handle)
            return
        if self._rollback is not None:
            self._discard(self._rollback)
        handle.by_value = answer.by_value is not None
        self._rollback = handle

    def failure_to_report(self) -> str:
        """Return `failure`, or "" if it was returned since the last success."""
        if self._is_failure_reported:
            return ""
        self._is_failure_reported = bool(self.failure)
        return self.failure

    def resume_rollback(self, session_channel: Channel) -> None:
        """Resume the session from the rollback checkpoint."""
        assert self._rollback is not None
        self._rollback = self._rollback.resume(self._loop, session_channel)
        self._are_resolved = False

    def drop_rollbacks(self) -> None:
        """Drop the rollback checkpoint and the pending one."""
        for handle in (self._rollback, self._pending_rollback):
            if handle is not None:
                self._discard(handle)
        self._rollback = self._pending_rollback = None

    # named checkpoints

    def begin_named(self, main: Channel, frame: bytes, blocks: int) -> None:
        """Send the session's process a request for one. Pass its answer to `finish_named`."""
        self._pending_named = self._request(main, frame, blocks)

    def finish_named(self, name: str, answer: Answer) -> None:
        """Store the pending checkpoint as `name`, or drop it if it was not made."""
        handle = self._pending_named
        if handle is None:
            return
        was_made = not answer.has_failed and handle.alive
        self._pending_named = None
        if was_made:
            handle.by_value = answer.by_value is not None
            self.named[name] = handle
        else:
            self._discard(handle)

    def has_named(self, name: str) -> bool:
        """Return True if the session can be resumed from checkpoint `name`."""
        handle = self.named.get(name)
        # The kernel may not have reported its end yet.
        return handle is not None and handle.alive and not is_ending(handle.channel.pid)

    def resume_named(self, name: str, session_channel: Channel) -> None:
        """Resume the session from checkpoint `name`."""
        self.named[name] = self.named[name].resume(self._loop, session_channel)
        self._are_resolved = False

    def drop_named(self, name: str) -> None:
        """Drop checkpoint `name`, if it exists."""
        if (handle := self.named.pop(name, None)) is not None:
            self._discard(handle)

    def close(self) -> None:
        """Drop all checkpoints."""
        for handle in (*self.handles(), *self._dropped):
            handle.drop()
            handle.channel.close()
        self._rollback = self._pending_rollback = self._pending_named = None
        self.named.clear()
