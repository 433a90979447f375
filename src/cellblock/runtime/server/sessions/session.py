"""A live session, as the server sees it: the process that runs its blocks, and how to restore it.

A session works on one request at a time. It survives whatever a block does to its process: it goes
on in that process if an interrupt ended the block, else from its rollback checkpoint, else in a new
process.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from typing import Any

from ... import protocol
from ..cell import Job, Run
from ..cgroups import CellCgroups
from ..event_loop import FOREVER
from ..faults import describe
from ..interfaces import FrameSender
from ..storage import WritableFolders
from .cancelling import press_stopped
from .channel import Channel
from .checkpoints import CheckpointHandle, CheckpointSet
from .ending import describe_ending
from .fault_boundary import FaultBoundary
from .init_handle import SessionInitHandle
from .orphans import SessionOrphans
from .output import SessionOutput
from .request import SessionRequest, parse_answer
from .restored_state import RestoredState

# All in seconds.
_USAGE_CHECK_INTERVAL = 0.05
_SPENDING_GRACE = 0.1  # until a block with other processes is killed at the limit of CPU time
_RECHECK_INTERVAL = 0.002  # between checks that killed processes are gone
_EXIT_REPORT_TIMEOUT = 2.0  # for the first process to report how the session's process ended
_START_TIMEOUT = 30.0  # far more than a loaded machine needs
_LOAD_TIMEOUT = 300.0  # to save and load all variables
_CLEAN_UP_TIMEOUT = 30.0  # for killed processes to be gone
_MAX_FAILURES = 3


class LiveSession:
    """One session.

    `on_ready` is called when its process is ready for requests, `on_gone` with the reason when its
    cell has failed. `on_answer`, if set, receives the next answer instead of the client.
    """

    def __init__(
        self, loop: FrameSender, name: str, spec: dict[str, Any], cgroups: CellCgroups
    ) -> None:
        self._loop, self._limits = FaultBoundary(loop, self.on_fault), spec["limits"]
        self.folders = WritableFolders(spec["writable"])
        self.on_ready: Callable[[], None] = lambda: None
        self.on_gone: Callable[[str], None] = lambda _why: None
        self.on_answer: Callable[[dict[str, Any]], None] | None = None
        self.output = SessionOutput(self._loop, self._limits.get("output_bytes"))
        try:
            self.init = SessionInitHandle(
                self._loop, name, cgroups, self._start_main, self._finish_request, self._fail
            )
        except BaseException:
            self.output.close()
            raise
        self.main: Channel | None = None
        self._main_ready = False
        self._main_inner_pid = 0  # its process ID in the cell, as it reports
        self._start_by = FOREVER
        self._failures = 0
        self.blocks = 0  # number of blocks run and values set in the present process
        self.in_work_folder = False
        self.checkpoints = CheckpointSet(self._loop, self._finish_request)
        self._orphans = SessionOrphans(self.init, self.checkpoints)
        # The order of a branch that requests its first rollback checkpoint. It is carried out
        # before the first block: an unused branch needs none.
        self.pending_checkpoint: dict[str, Any] | None = None
        # Number of blocks at the start of a branch, if its first process can fork it again.
        self.base_blocks: int | None = None
        self.restored_state = RestoredState()
        self.request: SessionRequest | None = None
        self._recheck_at = self._check_usage_at = FOREVER
        self.closing = False

    # the session's process

    def create_main_channel(self) -> Channel:
        """Return the channel of a process that is about to be forked."""
        self._main_ready = False
        self._start_by = time.monotonic() + _START_TIMEOUT
        self.main = Channel(self._loop, self._on_frame, self._on_main_exit)
        return self.main

    @property
    def main_ready(self) -> bool:
        """Whether its process has started."""
        return self._main_ready

    @property
    def _main_pid(self) -> int:
        return self.main.pid if self.main is not None else 0

    def _start_main(self) -> None:
        self._send_start({"in_work_folder": self.in_work_folder}, [])

    def start_with_variables(self, saved: CheckpointHandle, *, is_branch: bool = False) -> None:
        """Start a new process with the variables of `saved`."""
        with saved.send_variables() as reader:
            order = {"in_work_folder": is_branch or self.in_work_folder, "reseed": is_branch}
            self._send_start(order, [reader.fileno()])
        self._start_by = time.monotonic() + _LOAD_TIMEOUT

    def _send_start(self, order: dict[str, Any], descriptors: list[int]) -> None:
        channel = self.create_main_channel()
        self.init.send_order(
            {"op": "start"} | order, [channel.peer_fd, *self.output.writers, *descriptors]
        )
        channel.close_peer()

    def _on_frame(self, frame: protocol.Frame) -> None:
        request = self.request
        if frame.kind == protocol.SESSION_REPLY and frame.run == 0:
            answer = parse_answer(frame)
            if self._main_ready:
                self._assign_checkpoint_pids(answer)
                self.checkpoints.finish_rollback(answer)
            else:
                self._on_main_ready(answer)
        elif request is None or frame.run != request.run.number or request.answer is not None:
            return
        elif frame.kind == protocol.SESSION_REPLY:
            request.answer = parse_answer(frame)
            if "checkpoint_pids" in request.answer:
                self._assign_checkpoint_pids(request.answer)
            self._finish_request()
        elif request.should_forward(frame, self._limits.get("memory_bytes")):
            if frame.kind == protocol.INPUT_REQUEST:
                self.output.send_written(request.run)  # the output before the prompt
                request.start_input()
            self._loop.send(
                protocol.encode(frame.kind, frame.run, frame.payload),
                can_wait=frame.kind == protocol.DISPLAY,
            )
            if frame.kind != protocol.DISPLAY:
                self._loop.flush()

    def _on_main_ready(self, hello: dict[str, Any]) -> None:
        assert self.main is not None
        self._main_ready, self._start_by, self._failures = True, FOREVER, 0
        self.init.main_pid = self.main.pid
        self._main_inner_pid = hello["pid"]
        self.restored_state.record_lost_variables(hello.get("lost_variables") or [])
        self._assign_checkpoint_pids(hello)
        if not self.init.namespaces:  # a new branch is measured after it was reported
            self.init.measure_main()
        self.on_ready()
        request = self.request
        if request is not None and not request.restarted and not request.exited_at:
            if request.is_block and request.run.why is not None:
                request.answer = {"exit": 130, "interrupted": True}  # it does not begin
            else:
                self._send_order(request)
        self._finish_request()

    def _assign_checkpoint_pids(self, message: dict[str, Any]) -> None:
        """Find the checkpoints that the session's process reports."""
        for inner_pid in message.get("checkpoint_pids", ()):
            if self.main is not None and not self.checkpoints.is_resolved:
                pid = self.init.find_child(self.main.pid, inner_pid, self.checkpoints.pids())
                self.checkpoints.assign_pid(pid)

    def _on_main_exit(self) -> None:
        was_ready, self._main_ready = self._main_ready, False
        self.checkpoints.discard_unresolved()
        self.main, self._start_by = None, FOREVER
        self.init.main_pid = 0  # the kernel may use the process ID again
        if self.closing:
            return
        if self.request is not None and (was_ready or self.request.is_kill):
            self.request.exited_at = time.monotonic()
            self._finish_request()
        elif not was_ready:
            self._failures += 1
            if self._failures >= _MAX_FAILURES:
                self._fail("the session's process does not start")
                return
            self._restart_main()
        else:
            self._restore_main()

    # requests

    def submit(
        self, job: Job, descriptors: list[int] | None = None, payload: bytes | None = None
    ) -> SessionRequest | None:
        """Start the request of `job`. Return None if it was refused.

        `payload` is the encoded request, if the caller has it.
        """
        if self.request is not None or self.closing:
            error = {"error": "the session is busy or closed"}
            self._loop.send(protocol.encode_json(protocol.FAILED, job.number, error))
            return None
        try:
            run = Run(job, self._limits, self.folders)
        except (OSError, MemoryError) as error:
            self._loop.send(job.file_error_frame(error))
            return None
        request = self.request = SessionRequest(run, job.request, descriptors or [], payload)
        if request.is_block:
            self.output.begin_block(run)
            self._check_usage_at = time.monotonic() + run.storage.check_after(_USAGE_CHECK_INTERVAL)
        if request.is_kill:
            self._kill_main(request)
        elif self.main is None:  # it was killed to resume a checkpoint, which never happened
            self._restart_main()
        elif self._main_ready:
            self._send_order(request)
        return request

    def _kill_main(self, request: SessionRequest) -> None:
        """Kill the session's process before the session is resumed from a named checkpoint."""
        self.checkpoints.drop_rollbacks()
        if self.main is None:
            request.exited_at = time.monotonic()
            self._finish_request()
        elif self.main.pid:
            self.main.kill()
        else:
            self.main.kill_and_close()

    def _send_order(self, request: SessionRequest) -> None:
        assert self.main is not None
        if self.pending_checkpoint is not None:
            order, self.pending_checkpoint = self.pending_checkpoint, None
            self.begin_rollback_checkpoint(order)
        frame = protocol.encode(protocol.SESSION_REQUEST, request.run.number, request.payload)
        if request.order["op"] == "checkpoint":
            self.checkpoints.begin_named(self.main, frame, self.blocks)
        else:
            self.main.send(frame, request.descriptors)

    def send_data(self, frame: protocol.Frame) -> None:
        """Forward a chunk of a value, or a line of input."""
        if self.request is not None:
            self.request.end_input()
        if self.main is not None:
            self.main.send(protocol.encode(protocol.SESSION_DATA, frame.run, frame.payload))

    def stop_request(self, why: str) -> None:
        """End the present request because of the limit `why`, or "cancelled"."""
        request = self.request
        if request is None or request.answer is not None:
            return
        request.stop(why)
        self._press(request)  # immediately: before an answer to `input()` that follows
        self._check_usage_at = min(self._check_usage_at, time.monotonic() + _USAGE_CHECK_INTERVAL)
        self._stop_spending(request)

    def _press(self, request: SessionRequest) -> None:
        press_stopped(request, self.main if self._main_ready else None, self._orphans)

    def _stop_spending(self, request: SessionRequest) -> None:
        """At the limit of CPU time, end what the block has started, and soon the block, too."""
        if request.run.why != "cpu_seconds" or request.exited_at or not self._main_ready:
            return
        if self._orphans.kill(self._main_pid):
            request.kill_at = min(request.kill_at, time.monotonic() + _SPENDING_GRACE)

    def next_deadline(self) -> float:
        """Return the time at which `on_timer` must be called."""
        deadline = min(self._recheck_at, self._check_usage_at, self._start_by)
        if self.request is None:
            return deadline
        return min(deadline, self.request.kill_at, self.request.run.deadline)

    def on_timer(self, now: float) -> None:
        """Do the work that is due at the time `now`."""
        request = self.request
        if request is not None and request.answer is None:
            if now >= request.kill_at:
                request.kill_at = FOREVER
                if self.main is not None and self._main_ready:
                    self.main.kill()
            elif now >= request.run.deadline:
                request.run.deadline = FOREVER
                self.stop_request("wall_seconds")
            elif now >= self._check_usage_at:
                self._check_usage(request, now)
        if now >= self._start_by and self.main is not None:
            self._start_by = FOREVER
            self.main.kill_and_close()
        if now >= self._recheck_at:
            self._finish_request()

    def _check_usage(self, request: SessionRequest, now: float) -> None:
        is_limited = request.run.why not in (None, "cancelled")
        if is_limited:
            self._stop_spending(request)
        elif request.is_block:
            if limit := self.init.exceeded_limit(self._limits, request.run.storage):
                self.stop_request(limit)
        self._press(request)
        interval = _RECHECK_INTERVAL if is_limited else _USAGE_CHECK_INTERVAL
        self._check_usage_at = now + request.run.storage.check_after(interval)

    # the end of a request

    def _finish_request(self) -> None:
        """Finish the request if it is over.

        It is reported once its processes are gone and the session is ready for the next one.
        """
        request, now, self._recheck_at = self.request, time.monotonic(), FOREVER
        if request is None or (request.answer is None and not request.exited_at):
            return
        if not request.restarted and not self._is_cleaned_up(request, now):
            self._recheck_at = now + _RECHECK_INTERVAL
            return
        if request.is_kill:
            request.answer = {}
            self.output.discard_unsent()
            self._report(request)
            return
        if self.main is None and not request.restarted:
            request.restarted = True
            self._restore_main()
        if self._main_ready:
            self._report(request)

    def _is_cleaned_up(self, request: SessionRequest, now: float) -> bool:
        """Return True if the exit status is known and no process of the request is left."""
        if request.exited_at and request.exit_usage is None:
            request.exit_usage = self.init.exits.pop(self._main_inner_pid, None)
            if request.exit_usage is None and now < request.exited_at + _EXIT_REPORT_TIMEOUT:
                return False
            request.exit_usage = request.exit_usage or (None, 0.0)
        # The process answers in order: a checkpoint not reported by now was not made.
        self.checkpoints.discard_unresolved()
        kills_all = request.exited_at or (
            request.is_block and not request.order.get("keep_processes")
        )
        if not (kills_all and self._orphans.kill(self._main_pid)):
            return True
        self.init.unpause()
        request.clean_up_by = min(request.clean_up_by, now + _CLEAN_UP_TIMEOUT)
        if now >= request.clean_up_by:
            self._fail("processes that it has left cannot be killed")
        return False

    def pause(self) -> None:
        """Stop all processes of the session."""
        if self.main is not None:
            self.main.signal(signal.SIGSTOP)
        self._orphans.pause(self._main_pid)

    def unpause(self) -> None:
        """Continue all processes of the session."""
        if self.main is not None:
            self.main.signal(signal.SIGCONT)
        self._orphans.unpause(self._main_pid)

    def _restore_main(self) -> None:
        """Start a new process from the rollback checkpoint, or an empty one if there is none."""
        if (rollback := self.checkpoints.rollback) is None:
            self._restart_main()
            return
        before, self.blocks = self.blocks, rollback.blocks
        if rollback.by_value:
            self.start_with_variables(rollback)
        else:
            self.checkpoints.resume_rollback(self.create_main_channel())
        self.restored_state.record_restore(max(before - self.blocks, 0))

    def _restart_main(self) -> None:
        """Start a process that is empty, or in the state in which a branch began."""
        begins_with = self.base_blocks or 0
        is_branch = self.base_blocks is not None
        self.restored_state.record_restart(self.blocks - begins_with, is_branch=is_branch)
        self.blocks = begins_with
        self._start_main()

    def resume_checkpoint(self, name: str) -> None:
        """Resume the session from the named checkpoint, or start an empty one if it is gone."""
        if not self.checkpoints.has_named(name):
            self._restart_main()
            return
        self.restored_state = RestoredState()
        handle = self.checkpoints.named[name]
        self.blocks = handle.blocks
        if handle.by_value:
            self.start_with_variables(handle)
        else:
            self.checkpoints.resume_named(name, self.create_main_channel())

    def _report(self, request: SessionRequest) -> None:
        self._check_usage_at = FOREVER
        number = request.run.number
        if request.is_block:
            self.output.end_block(request.run)
            ending = describe_ending(
                request, self.init, self._main_pid, self.checkpoints, self._limits
            )
            ending |= self.restored_state.fields()
            self._loop.send(protocol.encode_json(protocol.ENDED, number, ending))
            self.restored_state = RestoredState()
        elif self.on_answer is not None:
            on_answer, self.on_answer = self.on_answer, None
            on_answer(self._build_answer(request))
        else:
            answer = self._build_answer(request)
            self._loop.send(protocol.encode_json(protocol.SESSION_REPLY, number, answer))
        self._loop.flush()
        self.request = None  # not earlier: a fault before this point is its answer
        request.run.close()
        if request.is_block or request.order["op"] == "set":
            self._after_change(request)
        elif request.order["op"] == "checkpoint" and request.answer is not None:
            # What prevented the last rollback checkpoint has ended: the next one must not be older.
            self._renew_rollback_checkpoint(request.order)
        self.in_work_folder = self.in_work_folder or request.order["op"] == "enter"

    def _after_change(self, request: SessionRequest) -> None:
        self.blocks += not request.restarted
        if not request.restarted or self.checkpoints.rollback is None:
            self.begin_rollback_checkpoint(request.order)
        self.init.start_block_usage(self._main_pid, self.checkpoints.pids())

    def _build_answer(self, request: SessionRequest) -> dict[str, Any]:
        ended = {"error": "The session's process ended."}
        answer = {**(ended if request.answer is None else request.answer), "why": request.run.why}
        if request.order["op"] == "checkpoint":
            self.checkpoints.finish_named(request.order["checkpoint_key"], answer)
        return answer

    def begin_rollback_checkpoint(self, order: dict[str, Any]) -> None:
        """Make the next rollback checkpoint, if `order` asks for these."""
        if self.main is not None and order.get("rollback_checkpoints"):
            self.checkpoints.begin_rollback(self.main, self.blocks)

    def _renew_rollback_checkpoint(self, order: dict[str, Any]) -> None:
        rollback = self.checkpoints.rollback
        is_older = rollback is None or rollback.blocks < self.blocks or rollback.by_value
        if self._main_ready and is_older:
            self.begin_rollback_checkpoint(order)

    # the end of the session

    def _fail(self, why: str) -> None:
        """Report that the session is lost. `on_gone` closes it."""
        if not self.closing:
            self._fail_request({"error": why, "lost": 1})
            self.on_gone(why)

    def on_fault(self, error: Exception) -> None:
        """Close the session because the server failed while it worked for it."""
        self._fail(describe(error))

    def _fail_request(self, failure: dict[str, Any]) -> None:
        if self.request is not None:
            run, self.request = self.request.run, None
            self._loop.send(protocol.encode_json(protocol.FAILED, run.number, failure))
            run.close()

    def close(self) -> None:
        """End the session. Its cell remains while branches live below it."""
        self._fail_request({"error": "the session was closed", "stopped": 1})
        if not self.closing:
            self.closing = True
            self.checkpoints.close()
            if self.main is not None:
                self.main.kill()
                self.main.close()
            self.main, self._main_ready = None, False
            with contextlib.suppress(OSError):  # they end with the cell
                self._orphans.kill(0)
            self.output.close()
        self.init.close()
