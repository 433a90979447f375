"""The boxes of sessions, as the server sees them: it forwards orders to them, and their replies.

A box is made at the first order to it. The first process of the session's cell carries it out.
"""

from __future__ import annotations

import errno
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
    MakeFolder,
    RunCommand,
    WriteFile,
)
from ...linux import process_tree
from ...messages import Failure, StartBox
from ...packets import decode_fields, decode_packet, encode_packet
from ...spec import CellLimits
from ..descriptors import are_free
from ..event_loop import FOREVER
from ..faults import DESCRIPTOR_LIMIT, run_contained
from ..interfaces import FrameSender
from .channel import Channel
from .fault_boundary import FaultBoundary
from .session import LiveSession

_DESCRIPTORS = 3  # that a box needs, one of them for long
_OUTPUT = (protocol.STDOUT, protocol.STDERR)
_DATA = (protocol.VALUE_CHUNK, protocol.BOX_TAKEN)
_CHECK_INTERVAL, _LIST_INTERVAL = 0.05, 0.2  # seconds
_KILLED = 128 + signal.SIGKILL
_WRITERS = (RunCommand, WriteFile, MakeFolder)


class SessionBox:
    """The box of `session`. `runs` are the requests that have not been answered yet.

    While commands, or processes that they have left, run, it checks the `limits` that the kernel
    does not enforce. They hold for all that the session has done together, and all commands are
    ended at one. Once there is too much by far, no command starts any more.

    A command can stop what works for the box, and in a container the first process as well. While
    an answer is open, they are continued.
    """

    def __init__(self, loop: FrameSender, session: LiveSession, limits: CellLimits) -> None:
        self._session, self._loop = session, FaultBoundary(loop, session.on_fault)
        self._limits = limits._replace(cpu_seconds=None)
        self.runs = dict[int, BoxOrder]()
        self._exceeded: str | None = None  # the limit because of which they are being ended
        self._has_left, self._list_at = False, 0.0  # processes of commands that have ended
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
        if isinstance(order, _WRITERS):
            if not self._has_commands and not self._has_left:
                self.begin_block()
                self._exceeded = None
                self._session.storage.hold_to_limits()
            if limit := self._exceeded or self._limit_against(order):
                self.runs[run] = order
                self._answer(
                    run, BoxAnswer(_KILLED, False, False, wall=0.0, cpu=0.0, peak=0), limit
                )
                return
            self._list_at = 0.0
        self.check_soon()
        self.send(protocol.BOX_REQUEST, run, payload)
        self.runs[run] = order

    def _limit_against(self, order: BoxOrder) -> str | None:
        """Return the limit that is exceeded so far that `order` cannot begin, or None."""
        limit = self._exceeded_limit(at_end=True)
        if limit and isinstance(order, RunCommand) and not self._has_commands:
            for _ in range(2):  # both may be exceeded by little
                self._session.storage.let_go_on()
                limit = limit and self._exceeded_limit(at_end=True)
        return limit

    @property
    def _has_commands(self) -> bool:
        return any(isinstance(order, RunCommand) for order in self.runs.values())

    def _exceeded_limit(self, *, at_end: bool) -> str | None:
        session = self._session
        return session.init.exceeded_in_all(self._limits, session.storage, at_end=at_end)

    def check_soon(self) -> None:
        """Check the limits soon, and go on if something runs."""
        after = self._session.storage.check_after(_CHECK_INTERVAL)
        self.check_at = min(self.check_at, time.monotonic() + after)

    def begin_block(self) -> None:
        """Measure from now on, if no block runs: what was before is not counted for the next."""
        session = self._session
        if session.request is None:
            session.init.start_block_usage(session.init.main_pid, session.checkpoints.pids())

    def on_timer(self, now: float) -> None:
        """Continue what was stopped. End all commands if they exceed a limit."""
        storage, self.check_at = self._session.storage, FOREVER
        if self.runs or self._session.request is not None:
            self.check_at = now + storage.check_after(_CHECK_INTERVAL)
        elif self._has_left:
            self.check_at = now + storage.check_after(_LIST_INTERVAL)
        if self.runs and not self._session.orphans.is_paused:
            self.send(protocol.BOX_DATA, 0)
        if self._exceeded is None and (limit := self._exceeded_limit(at_end=False)):
            self._end_all(limit)
        elif not self._has_commands and now >= self._list_at:  # have they left processes?
            self._list_at = now + _LIST_INTERVAL
            self._send_to_all(ListCommands)

    def _send_to_all(self, kind: type[ListCommands | EndCommands]) -> None:
        """Send an order of the server's own. Its answer shows if processes of commands are left."""
        self.send(protocol.BOX_REQUEST, 0, encode_packet(kind(0, self._other_processes())))

    def _end_all(self, limit: str) -> None:
        """End commands, the writing of files, and the block, which together exceed `limit`."""
        self._exceeded = limit
        for run, order in self.runs.items():
            if isinstance(order, WriteFile):
                self.send(protocol.CANCEL, run)
        if self._session.request is not None:
            self._session.stop_request(limit)
        self._send_to_all(EndCommands)

    def _answer(self, run: int, answer: BoxAnswer, limit: str | None) -> None:
        """Answer request `run`, and say which limit has ended it, if it is one."""
        order = self.runs.pop(run)
        if limit is not None:
            is_of_files = self._session.storage.is_memory_full
            text = _describe_limit(limit, self._limits, is_of_files=is_of_files)
            if isinstance(order, RunCommand):
                answer = answer._replace(exit=answer.exit or _KILLED, limit=limit)
                kind = protocol.STDOUT if order.is_merged else protocol.STDERR
                self._loop.send(protocol.encode(kind, run, f"{text}.\n".encode()))
            else:
                answer = BoxAnswer(errno=errno.EDQUOT, error=text.removeprefix("Killed: "))
        self._loop.send(answer.encode(run))
        self._loop.flush()

    def _complete(self, run: int, answer: BoxAnswer) -> None:
        """Pass on an answer, with the limit that has ended the command, if there is one."""
        order, limit = self.runs[run], None
        if isinstance(order, _WRITERS):
            is_undone = isinstance(order, RunCommand) or answer.errno is not None
            limit = self._exceeded if is_undone else None
            if limit is None and (limit := self._exceeded_limit(at_end=True)):
                self._end_all(limit)
                limit = limit if is_undone else None
        if limit is None and answer.exit == _KILLED:
            limit = self._session.init.limit_that_ended(self._limits, 0.0, signal.SIGKILL)
        self._answer(run, answer, limit)

    def _other_processes(self) -> tuple[int, ...]:
        """Return the processes of the session itself and of its branches, as the box sees them."""
        init = self._session.init
        main = self._session.main
        pids = {*self._session.checkpoints.pids(), *init.branch_pids()}
        pids |= {main.pid} if main is not None else set()
        return tuple(process_tree.pid_seen_by(pid, init.pid) for pid in pids if pid)

    def _on_frame(self, frame: protocol.Frame) -> None:
        if frame.run == 0 and frame.kind == protocol.BOX_REPLY:
            self._has_left = bool(decode_fields(frame, BoxAnswer).processes)
            if self._has_left:
                self.check_soon()
        if frame.run not in self.runs:
            return
        if frame.kind == protocol.BOX_REPLY:
            self._complete(frame.run, decode_fields(frame, BoxAnswer))
            return
        if frame.kind == protocol.BOX_STARTED:
            decode_fields(frame, CommandStarted)
        elif frame.kind not in (*_OUTPUT, *_DATA):
            raise protocol.ProtocolError(f"A box sent a frame of kind {frame.kind}.")
        can_wait = frame.kind in _OUTPUT
        self._loop.send(protocol.encode(*frame), can_wait=can_wait)
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


def _describe_limit(limit: str, limits: CellLimits, *, is_of_files: bool) -> str:
    match limit:
        case "memory_bytes":
            what = f"the limit of {limits.memory_bytes} bytes ({limit})"
            if is_of_files:
                folders = "the work folder and the home are in memory"
                return f"Out of memory: {folders}, and their files hold a quarter of {what}"
            return f"Out of memory: {what}"
        case "files":
            return f"Killed: the box made more than the limit of {limits.files} files ({limit})"
        case _:
            text = f"Killed: the box wrote more than the limit of {limits.written_bytes} bytes"
            return f"{text} in all ({limit})"


class SessionBoxes:
    """The boxes of `sessions`, which are all open sessions by number.

    `ends` says why others have ended.
    """

    def __init__(
        self,
        loop: FrameSender,
        sessions: Mapping[int, LiveSession],
        limits: CellLimits,
        ends: Mapping[int, str],
    ) -> None:
        self._loop, self._sessions, self._limits, self._ends = loop, sessions, limits, ends
        self._boxes: dict[LiveSession, SessionBox] = {}

    def handle_request(self, frame: protocol.Frame) -> None:
        """Carry out an order to a box."""
        order: BoxOrder = decode_packet(frame.payload, *BOX_ORDERS)
        session = self._sessions.get(order.session)
        if session is None:
            why = self._ends.get(order.session, "the session of the box does not exist")
            self._refuse(frame.run, Failure(why, lost=1))
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
            box.check_soon()

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
