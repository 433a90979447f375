"""A live session, as the server sees it: the process that runs its blocks, and how to restore it.

A session works on one request at a time. It survives whatever a block does to its process: it goes
on in that process if an interrupt ended the block, else from its rollback checkpoint, else in a new
process.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from ... import protocol
from ...linux import process_tree
from ...messages import Answer, Failure, RunCode, StartSession
from ...session_orders import EnterFolder, MakeCheckpoint, SetVariable, SubmittedOrder
from ...spec import ServerSpec
from ..cell import Run, file_failure
from ..cgroups import CellCgroups
from ..event_loop import FOREVER
from ..faults import describe
from ..interfaces import FrameSender
from ..storage import SessionStorage, WritableFolders
from .cancelling import press_stopped
from .channel import Channel
from .checkpoints import CheckpointHandle, CheckpointSet
from .ending import describe_ending
from .fault_boundary import FaultBoundary
from .init_handle import SessionInitHandle
from .orphans import SessionOrphans
from .output import SessionOutput
from .request import SessionJob, SessionRequest
from .restored_state import RestoredState
from .state import TRANSITIONS, WITHOUT_PROCESS, SessionOwner, State, state_during

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

    `owner` is told what happens to it. `number` is that under which it is open, or 0.
    """

    def __init__(
        self,
        owner: SessionOwner[LiveSession],
        loop: FrameSender,
        name: str,
        spec: ServerSpec,
        cgroups: CellCgroups,
    ) -> None:
        self._owner, self.number, self.state = owner, 0, State.STARTING
        self._loop, self._limits = FaultBoundary(loop, self.on_fault), spec.limits
        self.set_folders(WritableFolders(spec.writable))
        self.output = SessionOutput(self._loop, self._limits.output_bytes)
        try:
            self.init = SessionInitHandle(
                self._loop,
                name,
                cgroups,
                lambda: owner.on_hello(self),
                self._finish_request,
                self._fail,
            )
        except BaseException:
            self.output.close()
            raise
        self.init.has_namespaces = spec.zygote.namespaces
        self.main: Channel | None = None
        self.main_inner_pid = 0  # its process ID in the cell, as it reports
        self._start_by = FOREVER
        self._failures = 0
        self.blocks = 0  # number of blocks run and values set in the present process
        self.in_work_folder = False
        self.checkpoints = CheckpointSet(self._loop, self._finish_request)
        self.orphans = SessionOrphans(self.init, self.checkpoints)
        # A branch makes its first rollback checkpoint before its first block, if it has one.
        self.pending_checkpoint = False
        # Number of blocks at the start of a branch, if its first process can fork it again.
        self.base_blocks: int | None = None
        self.restored_state = RestoredState()
        self.request: SessionRequest | None = None
        self._recheck_at = self._check_usage_at = FOREVER

    def set_folders(self, folders: WritableFolders) -> None:
        """Set what its blocks and commands can write to, before there are any."""
        self.folders, self.storage = folders, SessionStorage(folders, self._limits)

    def _enter(self, state: State) -> None:
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"a session cannot go from {self.state.name} to {state.name}")
        self.state = state

    # the session's process

    def create_main_channel(self) -> Channel:
        """Return the channel of a process that is about to be forked."""
        if self.main_ready:
            self._enter(State.RESTORING)
        self._start_by = time.monotonic() + _START_TIMEOUT
        self.main = Channel(self._loop, self._on_frame, self._on_main_exit)
        return self.main

    @property
    def main_ready(self) -> bool:
        """Whether its process takes orders."""
        return self.state not in WITHOUT_PROCESS

    @property
    def _main_pid(self) -> int:
        return self.main.pid if self.main is not None else 0

    def start(self) -> None:
        """Start its process, which is empty or in the state in which a branch began."""
        self._send_start(StartSession(self.in_work_folder), [])

    def start_with_variables(self, saved: CheckpointHandle, *, is_branch: bool = False) -> None:
        """Start a new process with the variables of `saved`."""
        with saved.send_variables() as reader:
            order = StartSession(is_branch or self.in_work_folder, is_branch)
            self._send_start(order, [reader.fileno()])
        self._start_by = time.monotonic() + _LOAD_TIMEOUT

    def _send_start(self, order: StartSession, descriptors: list[int]) -> None:
        channel = self.create_main_channel()
        self.init.send_order(order, [channel.peer_fd, *self.output.writers, *descriptors])
        channel.close_peer()

    def _on_frame(self, frame: protocol.Frame) -> None:
        request = self.request
        if frame.kind == protocol.SESSION_REPLY and frame.run == 0:
            answer = Answer.from_session(frame)
            if self.main_ready:
                self._assign_checkpoint_pids(answer)
                self.checkpoints.finish_rollback(answer)
            else:
                self._on_main_ready(answer)
        elif request is None or frame.run != request.run.number or request.answer is not None:
            return
        elif frame.kind == protocol.SESSION_REPLY:
            request.answer = Answer.from_session(frame)
            self._assign_checkpoint_pids(request.answer)
            self._finish_request()
        elif request.should_forward(frame, self._limits.memory_bytes):
            self.output.forward(request, frame)

    def _on_main_ready(self, hello: Answer) -> None:
        assert self.main is not None
        self._enter(State.READY)
        self._start_by, self._failures = FOREVER, 0
        self.init.main_pid = self.main.pid
        self.main_inner_pid = hello.pid or 0
        self.restored_state.record_lost_variables(hello.lost_variables or ())
        self._assign_checkpoint_pids(hello)
        self.init.measure_main()
        self._owner.on_ready(self)
        request = self.request
        if request is not None and not request.restarted and not request.exited_at:
            if request.block is not None and request.run.why is not None:
                request.answer = Answer(exit=130, interrupted=True)  # it does not begin
            else:
                self._send_order(request)
        self._finish_request()

    def _assign_checkpoint_pids(self, answer: Answer) -> None:
        """Find the checkpoints that the session's process reports."""
        for inner_pid in answer.checkpoint_pids or ():
            if self.main is not None and not self.checkpoints.is_resolved:
                pid = self.init.find_child(self.main.pid, inner_pid, self.checkpoints.pids())
                self.checkpoints.assign_pid(pid)

    def _on_main_exit(self) -> None:
        was_ready = self.main_ready
        if was_ready:
            self._enter(State.RESTORING)
        self.checkpoints.discard_unresolved()
        self.main, self._start_by = None, FOREVER
        self.init.main_pid = 0  # the kernel may use the process ID again
        if self.state is State.CLOSED:
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
        self,
        job: SessionJob[SubmittedOrder],
        descriptors: list[int] | None = None,
        payload: bytes | None = None,
        on_answer: Callable[[Answer], None] | None = None,
    ) -> Failure | None:
        """Start the request of `job`, or return why it is refused.

        `payload` is the encoded request, if the caller has it. `on_answer` receives the answer
        instead of the client, but nothing if the session ends before.
        """
        if self.request is not None or self.state is State.CLOSED:
            return Failure("the session is busy or closed")
        try:
            run = Run(job.number, job.arrived, job.order.terms, self._limits, self.folders)
        except (OSError, MemoryError) as error:
            return file_failure(error)
        request = self.request = SessionRequest(
            run, job.order, descriptors or [], payload, on_answer
        )
        if request.block is not None:
            self.output.begin_block(run)
            self._check_usage_at = time.monotonic() + run.storage.check_after(_USAGE_CHECK_INTERVAL)
        if request.is_kill:
            self._kill_main(request)
        elif self.main is None:  # it was killed to resume a checkpoint, which never happened
            self._restart_main()
        elif self.main_ready:
            self._send_order(request)
        return None

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
        self._enter(state_during(request.order))
        if self.pending_checkpoint:
            self.pending_checkpoint = False
            self.begin_rollback_checkpoint()
        frame = protocol.encode(protocol.SESSION_REQUEST, request.run.number, request.payload)
        if isinstance(request.order, MakeCheckpoint):
            self.checkpoints.begin_named(self.main, frame, self.blocks)
        else:
            self.main.send(frame + request.take_data(), request.descriptors)

    def send_data(self, frame: protocol.Frame) -> None:
        """Forward a chunk of a value, or a line of input."""
        data = protocol.encode(protocol.SESSION_DATA, frame.run, frame.payload)
        is_held = self.request is not None and self.request.hold_data(data)
        if self.main is not None and not is_held:
            self.main.send(data)

    def stop_request(self, why: str) -> None:
        """End the present request because of the limit `why`, or "cancelled"."""
        request = self.request
        if request is None or request.answer is not None:
            return
        request.cpu_wait = process_tree.cpu_wait(self._main_pid)
        request.stop(why)
        self._press(request)  # immediately: before an answer to `input()` that follows
        self._check_usage_at = min(self._check_usage_at, time.monotonic() + _USAGE_CHECK_INTERVAL)
        self._stop_spending(request)

    def _press(self, request: SessionRequest) -> None:
        press_stopped(request, self.main if self.main_ready else None, self.orphans)

    def _stop_spending(self, request: SessionRequest) -> None:
        """At the limit of CPU time, end what the block has started, and soon the block, too."""
        if request.run.why != "cpu_seconds" or request.exited_at or not self.main_ready:
            return
        if self.orphans.kill(self._main_pid):
            request.shorten_grace(_SPENDING_GRACE)

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
                is_extended = request.extend_grace(now, process_tree.cpu_wait(self._main_pid))
                if not is_extended and self.main is not None and self.main_ready:
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
        elif request.block is not None:
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
            request.answer = Answer()
            self.output.discard_unsent()
            self._report(request)
            return
        if self.main is None and not request.restarted:
            request.restarted = True
            self._restore_main()
        if self.main_ready:
            self._report(request)

    def _is_cleaned_up(self, request: SessionRequest, now: float) -> bool:
        """Return True if the exit status is known and no process of the request is left."""
        if request.exited_at and request.exit_usage is None:
            request.exit_usage = self.init.exits.pop(self.main_inner_pid, None)
            if request.exit_usage is None and now < request.exited_at + _EXIT_REPORT_TIMEOUT:
                return False
            request.exit_usage = request.exit_usage or (None, 0.0)
        # The process answers in order: a checkpoint not reported by now was not made.
        self.checkpoints.discard_unresolved()
        kills_all = request.exited_at or (
            request.block is not None and not request.block.keep_processes
        )
        if not (kills_all and self.orphans.kill(self._main_pid)):
            return True
        self.init.unpause()
        request.clean_up_by = min(request.clean_up_by, now + _CLEAN_UP_TIMEOUT)
        if now >= request.clean_up_by:
            self._fail("processes that it has left cannot be killed")
        return False

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
        self.start()

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
        self.orphans.allow_forks()
        number = request.run.number
        if request.block is not None:
            self.output.end_block(request.run)
            ending = describe_ending(
                request, self.init, self.checkpoints, self._limits, self.restored_state
            )
            self._loop.send(ending.encode(number))
            self.restored_state = RestoredState()
        elif request.on_answer is not None:
            request.on_answer(self._build_answer(request))
        else:
            self._loop.send(self._build_answer(request).encode(number))
        self._loop.flush()
        self.request = None  # not earlier: a fault before this point is its answer
        if self.main_ready and self.state is not State.READY:
            self._enter(State.READY)
        request.run.close()
        order = request.order
        if isinstance(order, RunCode | SetVariable):
            self._after_change(request, wants_checkpoint=order.rollback_checkpoints)
        elif isinstance(order, MakeCheckpoint) and request.answer is not None:
            # What prevented the last rollback checkpoint has ended: the next one must not be older.
            self._renew_rollback_checkpoint(wanted=order.rollback_checkpoints)
        self.in_work_folder = self.in_work_folder or isinstance(order, EnterFolder)

    def _after_change(self, request: SessionRequest, *, wants_checkpoint: bool) -> None:
        self.blocks += not request.restarted
        if wants_checkpoint and (not request.restarted or self.checkpoints.rollback is None):
            self.begin_rollback_checkpoint()
        self.init.start_block_usage(self._main_pid, self.checkpoints.pids())

    def _build_answer(self, request: SessionRequest) -> Answer:
        answer = request.answer or Answer(error="The session's process ended.")
        answer = answer._replace(why=request.run.why)
        if isinstance(request.order, MakeCheckpoint):
            self.checkpoints.finish_named(request.order.key, answer)
        return answer

    def begin_rollback_checkpoint(self) -> None:
        """Make the next rollback checkpoint."""
        if self.main is not None:
            self.checkpoints.begin_rollback(self.main, self.blocks)

    def _renew_rollback_checkpoint(self, *, wanted: bool) -> None:
        rollback = self.checkpoints.rollback
        is_older = rollback is None or rollback.blocks < self.blocks or rollback.by_value
        if wanted and self.main_ready and is_older:
            self.begin_rollback_checkpoint()

    # the end of the session

    def _fail(self, why: str) -> None:
        """Report that the session is lost. The owner closes it."""
        if self.state is not State.CLOSED:
            if self.init.ran_out_of_memory():
                limit = f"the limit of {self._limits.memory_bytes} bytes (memory_bytes)"
                why = f"out of memory: {limit} was reached, and {why}"
            self._fail_request(Failure(why, lost=1))
            self._owner.on_gone(self, why)

    def on_fault(self, error: Exception) -> None:
        """Close the session because the server failed while it worked for it."""
        self._fail(describe(error))

    def _fail_request(self, failure: Failure) -> None:
        if self.request is not None:
            request, self.request = self.request, None
            if request.on_answer is None:
                self._loop.send(failure.encode(request.run.number))
            request.run.close()

    def close(self) -> None:
        """End the session. Its cell remains while branches live below it."""
        self._fail_request(Failure("the session was closed", stopped=1))
        if self.state is not State.CLOSED:
            self._enter(State.CLOSED)
            self.init.discount_from_parent()
            self.checkpoints.close()
            if self.main is not None:
                self.main.kill()
                self.main.close()
            self.main = None
            with contextlib.suppress(OSError):  # they end with the cell
                self.orphans.kill(0)
            self.output.close()
        self.init.close()
