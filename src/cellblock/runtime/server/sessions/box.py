"""The boxes of sessions, as the server sees them: it forwards orders to them, and their replies.

A box is made at the first order to it. The first process of the session's cell carries it out.
"""

from __future__ import annotations

import functools
import signal
import time
from collections import deque
from collections.abc import Mapping

from ... import protocol
from ...box_orders import (
    BOX_ORDERS,
    BoxAnswer,
    BoxOrder,
    CommandStarted,
    EndCommands,
    ListCommands,
    RunCommand,
)
from ...linux import process_tree
from ...messages import Failure, StartBox
from ...packets import decode_fields, decode_packet, encode_packet
from ...spec import CellLimits
from ..descriptors import are_free
from ..event_loop import FOREVER
from ..faults import DESCRIPTOR_LIMIT, run_contained
from ..interfaces import FrameSender
from ..storage import StorageMeter
from .channel import Channel
from .fault_boundary import FaultBoundary
from .session import LiveSession

_DESCRIPTORS = 3  # that a box needs, one of them for long
_OUTPUT = (protocol.STDOUT, protocol.STDERR)
_DATA = (protocol.VALUE_CHUNK, protocol.BOX_TAKEN)
_CHECK_INTERVAL = 0.05  # seconds
_KILLED = 128 + signal.SIGKILL


class SessionBox:
    """The box of `session`. `runs` are the requests that have not been answered yet.

    While commands run, it checks the `limits` that the kernel does not enforce. Commands in a cell
    are measured together, and all of them are ended. While a block runs, its own checks do that.

    A command can stop what works for the box, and in a container the first process as well. While
    an answer is open, they are continued.
    """

    def __init__(self, loop: FrameSender, session: LiveSession, limits: CellLimits) -> None:
        self._session, self._loop = session, FaultBoundary(loop, session.on_fault)
        self._limits = limits._replace(cpu_seconds=None)
        self.runs = dict[int, BoxOrder]()
        self._storage: StorageMeter | None = None  # while commands run
        self._exceeded: str | None = None  # the limit because of which they are being ended
        self.check_at = FOREVER
        self._held = deque[bytes]()
        self._channel = Channel(self._loop, self._on_frame, self._on_end, has_pidfd=False)
        try:
            self._channel.set_pid(session.init.pid)
            session.init.send_order(StartBox(), [self._channel.peer_fd], self._on_started)
            self._channel.close_peer()
        except BaseException:
            self._channel.close()
            raise
        session.orphans.spares_commands = True
        session.orphans.on_unpause = self._send_held

    def send(self, kind: int, run: int, payload: bytes = b"") -> None:
        """Send a frame to the box. While its cell is stopped for a fork, nothing starts there."""
        self._held.append(protocol.encode(kind, run, payload))
        if not self._session.orphans.is_paused:
            self._send_held()

    def _send_held(self) -> None:
        self._session.init.unpause()
        while self._held:
            self._channel.send(self._held.popleft())

    def order(self, run: int, order: BoxOrder, payload: bytes) -> None:
        """Let the box carry out an order, whose packet is `payload`."""
        if isinstance(order, ListCommands | EndCommands):
            payload = encode_packet(order._replace(others=self._other_processes()))
        if isinstance(order, RunCommand) and self._storage is None:
            self._storage = StorageMeter(self._session.folders, self._limits)
            self.begin_block()
            self._exceeded = None
        self.check_at = min(self.check_at, time.monotonic() + _CHECK_INTERVAL)
        self.send(protocol.BOX_REQUEST, run, payload)
        self.runs[run] = order

    def begin_block(self) -> None:
        """Measure from now on, if no block runs: what was before is not counted for the next."""
        session = self._session
        if session.request is None:
            session.init.start_block_usage(session.init.main_pid, session.checkpoints.pids())

    def on_timer(self, now: float) -> None:
        """Continue what was stopped. End all commands if they exceed a limit."""
        self.check_at = now + _CHECK_INTERVAL if self.runs else FOREVER
        if self.runs and not self._session.orphans.is_paused:
            self.send(protocol.BOX_DATA, 0)
        if self._storage is None:
            return
        self.check_at = now + self._storage.check_after(_CHECK_INTERVAL)
        if self._session.request is not None:
            return
        exceeded = self._session.init.exceeded_by_commands(self._limits, self._storage)
        if exceeded and self._exceeded is None:
            self._exceeded = exceeded
            others = self._other_processes()
            self.send(protocol.BOX_REQUEST, 0, encode_packet(EndCommands(0, others)))

    def _complete(self, answer: BoxAnswer) -> BoxAnswer:
        """Return the answer of a command with the limit that has ended it, if there is one."""
        limit = self._exceeded
        if limit is None and answer.exit == _KILLED:
            limit = self._session.init.limit_that_ended(self._limits, 0.0, signal.SIGKILL)
        if not any(isinstance(order, RunCommand) for order in self.runs.values()):
            self._storage = None
        return answer._replace(limit=limit)

    def _other_processes(self) -> tuple[int, ...]:
        """Return the processes of the session itself and of its branches, as the box sees them."""
        init = self._session.init
        main = self._session.main
        pids = {*self._session.checkpoints.pids(), *init.branch_pids()}
        pids |= {main.pid} if main is not None else set()
        return tuple(process_tree.pid_seen_by(pid, init.pid) for pid in pids if pid)

    def _on_frame(self, frame: protocol.Frame) -> None:
        if frame.run not in self.runs:
            return
        data, can_wait = protocol.encode(*frame), frame.kind in _OUTPUT
        if frame.kind == protocol.BOX_REPLY:
            answer = decode_fields(frame, BoxAnswer)
            if isinstance(self.runs.pop(frame.run), RunCommand):
                data = self._complete(answer).encode(frame.run)
        elif frame.kind == protocol.BOX_STARTED:
            decode_fields(frame, CommandStarted)
        elif frame.kind not in (*_OUTPUT, *_DATA):
            raise protocol.ProtocolError(f"A box sent a frame of kind {frame.kind}.")
        self._loop.send(data, can_wait=can_wait)
        if not can_wait:
            self._loop.flush()

    def _on_started(self, error: str) -> None:
        if error:
            self._on_end()

    def _on_end(self) -> None:
        self._session.on_fault(ConnectionError("its box has ended"))

    def close(self, failure: Failure) -> None:
        """End the box. Its open requests are answered with `failure`."""
        self._session.orphans.spares_commands = False
        self._channel.close()
        for run in self.runs:
            self._loop.send(failure.encode(run))
        self._loop.flush()
        self.runs.clear()


class SessionBoxes:
    """The boxes of `sessions`, which are all open sessions by number."""

    def __init__(
        self, loop: FrameSender, sessions: Mapping[int, LiveSession], limits: CellLimits
    ) -> None:
        self._loop, self._sessions, self._limits = loop, sessions, limits
        self._boxes: dict[LiveSession, SessionBox] = {}

    def handle_request(self, frame: protocol.Frame) -> None:
        """Carry out an order to a box."""
        order: BoxOrder = decode_packet(frame.payload, *BOX_ORDERS)
        session = self._sessions.get(order.session)
        if session is None:
            self._refuse(frame.run, Failure("the session of the box does not exist", lost=1))
        elif (box := self._boxes.get(session)) is not None:
            box.order(frame.run, order, frame.payload)
        elif not are_free(_DESCRIPTORS):
            self._refuse(frame.run, Failure(DESCRIPTOR_LIMIT, full=1))
        else:
            box = self._boxes[session] = SessionBox(self._loop, session, self._limits)
            box.order(frame.run, order, frame.payload)

    def _refuse(self, run: int, failure: Failure) -> None:
        self._loop.send(failure.encode(run))
        self._loop.flush()

    def _of_run(self, run: int) -> SessionBox | None:
        return next((box for box in self._boxes.values() if run in box.runs), None)

    def forward(self, frame: protocol.Frame) -> bool:
        """Forward data for a request, or its cancellation. Return False if no box works on it."""
        if (box := self._of_run(frame.run)) is None:
            return False
        box.send(frame.kind, frame.run, frame.payload)
        return True

    def begin_block(self, session: LiveSession) -> None:
        """Measure the next block of `session` without what commands have used before."""
        if (box := self._boxes.get(session)) is not None:
            box.begin_block()

    def next_deadline(self) -> float:
        """Return the time at which `on_timer` must be called."""
        return min([box.check_at for box in self._boxes.values()], default=FOREVER)

    def on_timer(self, now: float) -> None:
        """Do the work that is due at the time `now`."""
        for session, box in [*self._boxes.items()]:
            if now >= box.check_at:
                run_contained(functools.partial(box.on_timer, now), session.on_fault)

    def close(self, session: LiveSession, failure: Failure) -> None:
        """End the box of `session`, if it has one. Its requests are answered with `failure`."""
        if (box := self._boxes.pop(session, None)) is not None:
            box.close(failure)
