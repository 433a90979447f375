"""What a session is asked to do, as the server sees it, and the validation of its answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from ... import protocol
from ...messages import Answer, InputQuestion, RunCode
from ...packets import decode_fields, encode_packet
from ...session_orders import GetVariable, KillProcess, SubmittedOrder
from ..cell import Run
from ..event_loop import FOREVER

_Order = TypeVar("_Order", covariant=True)
_MAX_FORWARDED_BYTES = 64 * 1024 * 1024  # of the displays and input requests of one block

# All in seconds.
_ANSWER_TIMEOUT = 300.0  # for what runs no block, if the request has no time limit
_INTERRUPT_GRACE = 1.0  # between an interrupt and SIGKILL
_OTHERS_GRACE = 0.3  # and for what the block has started: it may wait for that, or for a CPU
_MAX_CPU_WAIT = 4.0  # that is added to it, if the process has to wait for a CPU
_MAX_INPUT_WAIT = 3600.0  # for the answers to `input()` of one block, in addition to its time limit
_KILLING_LIMITS = ("memory_bytes", "written_bytes", "files")


class SessionJob(Generic[_Order]):
    """A request to a session, or about one. It arrived at the time `arrived`."""

    def __init__(self, number: int, order: _Order, arrived: float) -> None:
        self.number, self.order, self.arrived = number, order, arrived


class SessionRequest:
    """A block or another order that a session works on, and its progress."""

    def __init__(
        self,
        run: Run,
        order: SubmittedOrder,
        descriptors: list[int],
        payload: bytes | None,
        on_answer: Callable[[Answer], None] | None,
    ) -> None:
        self.run, self.order, self.descriptors = run, order, descriptors
        self.on_answer = on_answer
        self.payload = encode_packet(order) if payload is None else payload
        self.block = order if isinstance(order, RunCode) else None
        self.is_kill = isinstance(order, KillProcess)
        if self.block is None:
            run.deadline = min(run.deadline, run.started + _ANSWER_TIMEOUT)
        self._input_wait_left = _MAX_INPUT_WAIT
        self._asked_at: float | None = None  # when `input()` was called that waits for an answer
        self.answer: Answer | None = None
        self.kill_at = FOREVER
        self.cpu_wait = 0.0  # for how long its process had waited for a CPU when it was stopped
        self._cpu_wait_left = 0.0  # of what may be added to the grace
        self.must_interrupt = False  # as soon as the process handles interrupts
        self.kill_others_at = FOREVER  # processes that the block may be waiting for
        self.others_have_ended = False  # after that
        self._forwarded_bytes = 0
        self._held_data: bytes | None = b""  # None once the process has the order
        self.exited_at = 0.0  # when the session's process has ended meanwhile
        self.exit_usage: tuple[int | None, float] | None = None  # its exit status, CPU seconds
        self.clean_up_by = FOREVER
        self.restarted = False

    def stop(self, why: str) -> None:
        """Record that the request has to end.

        A cancelled request has time to end a call of native code, or to copy the session: it is
        killed when it is cancelled again, or at a limit.
        """
        now, is_cancel = time.monotonic(), why == "cancelled"
        if self.run.why not in (None, "cancelled"):
            return
        self.must_interrupt = True
        is_first_cancel = is_cancel and self.run.why is None
        if self.block is not None and not self.block.keep_processes:
            grace = _INTERRUPT_GRACE if is_first_cancel else _OTHERS_GRACE
            self.kill_others_at = min(self.kill_others_at, now + grace)
        if not is_first_cancel:
            # After a mere interrupt the session would keep the memory, or could keep writing.
            is_urgent = is_cancel or why in _KILLING_LIMITS
            self.kill_at = min(self.kill_at, now + (0.0 if is_urgent else _INTERRUPT_GRACE))
            self._cpu_wait_left = 0.0 if is_urgent else _MAX_CPU_WAIT
        self.run.why = self.run.why or why

    def shorten_grace(self, seconds: float) -> None:
        """Let it be killed in `seconds`, even if its process waits for a CPU."""
        self.kill_at, self._cpu_wait_left = min(self.kill_at, time.monotonic() + seconds), 0.0

    def extend_grace(self, now: float, cpu_wait: float) -> bool:
        """At `kill_at`, add the time that the process waited for a CPU. Return False if it is over.

        On a busy machine, a session would be lost otherwise before it could react.
        """
        more = min(cpu_wait - self.cpu_wait, self._cpu_wait_left)
        self.cpu_wait, self._cpu_wait_left = cpu_wait, self._cpu_wait_left - more
        self.kill_at = now + more if more > 0 else FOREVER
        return more > 0

    def start_input(self) -> None:
        """Stop the clock of the time limit until data arrives, if a person is asked."""
        if self._asked_at is None and self.block is not None and not self.block.input_is_timed:
            self._asked_at = time.monotonic()
            self.run.deadline += self._input_wait_left

    def hold_data(self, data: bytes) -> bool:
        """Keep `data` for a process that has no order yet. Return False if it has one."""
        self._end_input()
        if self._held_data is None:
            return False
        self._held_data += data
        return True

    def take_data(self) -> bytes:
        """Return the data to send with the order."""
        data, self._held_data = self._held_data or b"", None
        return data

    def _end_input(self) -> None:
        """Let the clock of the time limit run again."""
        if self._asked_at is not None:
            waited = min(time.monotonic() - self._asked_at, self._input_wait_left)
            self.run.deadline -= self._input_wait_left - waited
            self._input_wait_left -= waited
            self._asked_at = None

    def wait_status(self) -> tuple[int | None, float]:
        """Return the wait status of the block, if known, and the CPU seconds of its process."""
        if self.answer is None:
            return self.exit_usage or (None, 0.0)
        code = 1 if self.answer.exit is None else self.answer.exit
        return (code & 0xFF) << 8, self.answer.cpu or 0.0

    def error(self) -> str | None:
        """Return what failed while the block ran, unless it was interrupted."""
        if self.answer is None or self.answer.interrupted:
            return None
        return self.answer.error

    def should_forward(self, frame: protocol.Frame, memory_bytes: int | None) -> bool:
        """Return True if the client should receive `frame`.

        `memory_bytes` is the memory limit of the session, and so the size limit of a value. Raise
        `ProtocolError` for an invalid frame or a value that is too large.
        """
        self._forwarded_bytes += len(frame.payload)
        match frame.kind:
            case protocol.DISPLAY:
                return self._forwarded_bytes <= _MAX_FORWARDED_BYTES
            case protocol.INPUT_REQUEST if self.block is not None and self.block.answers_input:
                decode_fields(frame, InputQuestion)
                return self._forwarded_bytes <= _MAX_FORWARDED_BYTES
            case protocol.VALUE_CHUNK if isinstance(self.order, GetVariable):
                if memory_bytes is not None and self._forwarded_bytes > memory_bytes:
                    raise protocol.ProtocolError(
                        "A value is larger than the memory limit of its session."
                    )
                return True
            case _:
                return False
