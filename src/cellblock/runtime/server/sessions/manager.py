"""All sessions of one server: a spare one, those that are open, and those that are ending.

A `SESSION_REQUEST` frame holds an order of `session_orders`. The manager carries out those to the
server, and forwards the others to the session.
"""

from __future__ import annotations

import functools
import os
import socket
import time
from collections.abc import Iterable, Sequence

from ... import handshake, protocol
from ...linux.held_file import HeldFile
from ...messages import Answer, Failure, MountFolders, MountSpec, RunProgram
from ...packets import decode_packet
from ...session_orders import (
    SESSION_ORDERS,
    CloseSession,
    DropCheckpoint,
    EnterFolder,
    ForkSession,
    KillProcess,
    MakeCheckpoint,
    MeasureCpu,
    OpenSession,
    ReclaimFiles,
    ResumeCheckpoint,
    SessionOrder,
    SubmittedOrder,
)
from ...spec import ServerSpec
from ..cell import Job
from ..cgroups import CellCgroups
from ..descriptors import MOST_PER_BRANCH, MOST_PER_REQUEST, are_free
from ..event_loop import FOREVER
from ..faults import DESCRIPTOR_LIMIT, describe, run_contained
from ..interfaces import FrameSender
from ..mount_client import MountClient, NoMounts
from ..pool import Pool
from ..storage import WritableFolders, mounted_folders
from .box import SessionBoxes
from .fork import CHECKPOINT_GONE, Fork
from .pending import PendingRequests
from .request import SessionJob
from .session import LiveSession
from .state import State

_REFILL_DELAY = 0.02  # seconds, in which a new session can start its work undisturbed
_CLOSE_GRACE = 2.0  # seconds for a first process to end
_MAX_FAILURES = 3
_MAX_ENDS = 1000  # that are remembered
_MAX_REMEMBERED_RUNS = 100  # before those that are over are forgotten
_RELEASE_INTERVAL = 1.0  # seconds for which files that need not stay open may do so
_OPENING = (OpenSession, ForkSession, MakeCheckpoint, RunProgram)  # need descriptors of the server
_SESSION_GONE = "the session does not exist: it was closed or has failed"


class SessionManager:
    """The sessions that one zygote forks for one server."""

    def __init__(
        self,
        loop: FrameSender,
        zygote: socket.socket,
        zygote_pid: int,
        mount_socket: socket.socket | None,
        spec: ServerSpec,
        cgroups: CellCgroups,
    ) -> None:
        self._loop, self._zygote, self._spec = loop, zygote, spec
        self.pool = Pool(loop, zygote, zygote_pid, spec, cgroups, other_inits=self._init_pids)
        self._mount_client = (
            MountClient(loop, mount_socket) if mount_socket is not None else NoMounts()
        )
        self._sessions: dict[int, LiveSession] = {}
        self._ends: dict[int, str] = {}  # why the last ones have ended, by number
        self.boxes = SessionBoxes(loop, self._sessions, spec.limits, self._ends)
        # Of open sessions, by number. Needed only if the server ends before them.
        self.folders_to_delete: dict[int, Sequence[str]] = {}
        self._spare: LiveSession | None = None
        self._waiting: list[SessionJob[OpenSession]] = []
        self._pending = PendingRequests(loop)
        self._closing: list[LiveSession] = []
        self._forks: dict[LiveSession, Fork] = {}  # by branch
        self._restores: dict[LiveSession, SessionJob[ResumeCheckpoint]] = {}  # of named checkpoints
        self._sessions_by_run: dict[int, LiveSession] = {}
        self._fetching = set[int]()  # the numbers of programs whose mounts are being fetched
        # Programs that may not have ended yet, and their sessions, by number.
        self._programs: dict[int, tuple[Job, LiveSession]] = {}
        self._has_users = spec.zygote.user_landlock is not None
        is_plain_user = self._has_users and os.geteuid() != 0
        self._users = f"/proc/{zygote_pid}/ns/user" if is_plain_user else ""
        self._closers: dict[LiveSession, SessionJob[SessionOrder]] = {}
        self._created = self._failures = 0
        self._refill_at, self._release_at = time.monotonic(), FOREVER

    # requests

    def handle_request(self, frame: protocol.Frame) -> None:
        """Carry out a request or forward it to its session."""
        order: SessionOrder = decode_packet(frame.payload, *SESSION_ORDERS)
        job = SessionJob(frame.run, order, time.monotonic())
        session = self._sessions.get(order.session)
        self._pending.add(job, session)
        self._release_at = min(self._release_at, job.arrived + _RELEASE_INTERVAL)
        count = MOST_PER_REQUEST + len(getattr(order, "mounts", ()))
        count += MOST_PER_BRANCH * len(getattr(order, "branches", ()))
        if isinstance(order, _OPENING) and not are_free(count):
            self._pending.refuse(job, DESCRIPTOR_LIMIT, full=True)
        elif isinstance(order, OpenSession):
            self._waiting.append(SessionJob(job.number, order, job.arrived))
            self._hand_out_spare()
        elif session is None:
            if isinstance(order, CloseSession):  # by the client, of a session that was lost
                self.folders_to_delete.pop(order.session, None)
            self._pending.refuse(job, self._ends.get(order.session, _SESSION_GONE), lost=True)
        else:
            on_fault = functools.partial(self._on_request_fault, job, session)
            run_contained(functools.partial(self._handle, job, session, frame), on_fault)

    def _handle(
        self, job: SessionJob[SessionOrder], session: LiveSession, frame: protocol.Frame
    ) -> None:
        match order := job.order:
            case CloseSession():
                self._close_for_client(job, session)
            case KillProcess(key=str(key)) | ForkSession(key=str(key)) if (
                not session.checkpoints.has_named(key)
            ):
                self._pending.answer(job, Answer(error=CHECKPOINT_GONE))
            case ResumeCheckpoint():
                self._restores[session] = SessionJob(job.number, order, job.arrived)
                session.resume_checkpoint(order.key)
            case ReclaimFiles():
                self._take_back(order.folders, job)
            case DropCheckpoint() | MeasureCpu():
                self._pending.answer(job, _carry_out(order, session))
            case ForkSession():
                self._fork(SessionJob(job.number, order, job.arrived), session)
            case RunProgram():
                program = Job(job.number, order.request, job.arrived)
                self._add_program(program, session)
                self._mount_client.fetch(
                    order.mounts,
                    functools.partial(self._on_program_fetched, program, order.mounts),
                )
            case OpenSession():
                pass
            case _:
                if len(self._sessions_by_run) > _MAX_REMEMBERED_RUNS:
                    self._sessions_by_run = {
                        number: other
                        for number, other in self._sessions_by_run.items()
                        if other.request is not None
                    }
                self._sessions_by_run[frame.run] = session
                self._submit(SessionJob(job.number, order, job.arrived), session, frame.payload)

    def _submit(
        self,
        job: SessionJob[SubmittedOrder],
        session: LiveSession,
        payload: bytes | None = None,
    ) -> None:
        self.boxes.begin_block(session)
        if failure := session.submit(job, payload=payload):
            self._pending.answer(job, failure)
        else:
            self._pending.hand_over(job)  # the session answers

    def _on_request_fault(
        self, job: SessionJob[SessionOrder], session: LiveSession, error: Exception
    ) -> None:
        """Refuse a request, and end its session if that has begun to work on it."""
        self._pending.refuse(job, describe(error))
        for fork in {fork for fork in self._forks.values() if fork.job.number == job.number}:
            fork.fail(describe(error))
        is_begun = session.request is not None and session.request.run.number == job.number
        if is_begun or isinstance(job.order, ResumeCheckpoint):
            session.on_fault(error)

    def send_data(self, frame: protocol.Frame) -> None:
        """Forward a chunk of a value, or a line of input."""
        if (session := self._sessions_by_run.get(frame.run)) is not None:
            session.send_data(frame)

    def cancel_run(self, number: int) -> bool:
        """Stop run `number`. Return False if no session has such a run."""
        if self.boxes.forward(protocol.Frame(protocol.CANCEL, number, b"")):
            return True
        if number in self._fetching:
            self._fetching.remove(number)
            return True
        session = self._sessions_by_run.get(number)
        if session is None or session.request is None or session.request.run.number != number:
            return False
        session.stop_request("cancelled")
        return True

    # the spare session

    def _hand_out_spare(self) -> None:
        if self._waiting and self._spare is not None and self._spare.main_ready:
            session, self._spare = self._spare, None
            if self._spec.spare_sessions:
                self._refill_at = time.monotonic() + _REFILL_DELAY
            job = self._waiting.pop(0)
            run_contained(functools.partial(self._open_session, job, session), session.on_fault)
        if self._waiting and self._spare is None:
            self._make_spare()

    def _make_spare(self) -> None:
        self._refill_at = FOREVER
        try:
            session = self._spare = self._create_session()
            socket.send_fds(self._zygote, [handshake.SESSION], [session.init.peer_fd])
            session.init.close_peer()
        except (OSError, MemoryError) as error:
            self._on_spare_gone(describe(error))

    def _create_session(self) -> LiveSession:
        self._created += 1
        name = f"session-{self._created}"
        return LiveSession(self, self._loop, name, self._spec, self.pool.cgroups)

    def on_hello(self, session: LiveSession) -> None:
        """See `SessionOwner`."""
        if (fork := self._forks.get(session)) is not None:
            fork.on_hello(session)
        else:
            session.start()

    def on_ready(self, session: LiveSession) -> None:
        """See `SessionOwner`."""
        if session is self._spare:
            self._failures = 0
            self._hand_out_spare()
        elif (fork := self._forks.get(session)) is not None:
            fork.on_ready(session)
        elif (job := self._restores.pop(session, None)) is not None:
            error = session.restored_state.take_error()
            self._pending.answer(job, Answer(error=error))
            if job.order.rollback_checkpoints:
                session.begin_rollback_checkpoint()

    def on_gone(self, session: LiveSession, why: str) -> None:
        """See `SessionOwner`."""
        if session is self._spare:
            self._on_spare_gone(why)
        elif (fork := self._forks.get(session)) is not None:
            fork.fail(why)
        else:
            self.boxes.close(session, Failure(why, lost=1))
            self._close_session(session.number, why)

    def _on_spare_gone(self, why: str) -> None:
        if self._spare is not None:
            self._retire(self._spare)
        self._spare = None
        self._failures += 1
        if self._failures < _MAX_FAILURES or self._waiting:
            self._refill_at = time.monotonic() + _REFILL_DELAY
        if self._failures >= _MAX_FAILURES:
            for job in self._waiting:
                self._pending.refuse(job, why)
            self._waiting.clear()

    # open and close

    def _open_session(self, job: SessionJob[OpenSession], session: LiveSession) -> None:
        """Mount the folders of a session and let it change to its work folder."""
        self._pending.add(job, session)
        self._register(job.order.session, session, job.order.delete)
        self._mount_client.fetch(
            job.order.mounts, functools.partial(self._on_session_fetched, job, session)
        )

    def _on_session_fetched(
        self, job: SessionJob[OpenSession], session: LiveSession, mounts: list[int], error: str
    ) -> None:
        if job not in self._pending:  # the session has ended meanwhile
            return
        if error:
            self._close_session(session.number, error)
            return
        targets = tuple(mount.target for mount in job.order.mounts)
        self._set_folders(job.order.mounts, session)
        session.init.send_order(
            MountFolders(targets),
            mounts,
            functools.partial(self._on_mounted, job, session),
        )

    def _set_folders(self, mounts: Iterable[MountSpec], session: LiveSession) -> None:
        paths = [*self._spec.writable, *mounted_folders(mounts).paths]
        session.set_folders(WritableFolders(paths, self._users))

    def _on_mounted(self, job: SessionJob[OpenSession], session: LiveSession, error: str) -> None:
        if error:
            self._close_session(session.number, error)
            return
        self._submit(SessionJob(job.number, EnterFolder(), job.arrived), session)

    def _register(self, number: int, session: LiveSession, delete: Sequence[str]) -> None:
        self._sessions[number], session.number = session, number
        self.folders_to_delete[number] = delete

    def _close_for_client(self, job: SessionJob[SessionOrder], session: LiveSession) -> None:
        self._end_programs(session)
        self.folders_to_delete.pop(session.number, None)  # the client deletes them
        self._close_session(session.number)
        if self._has_users and session.init.branches:  # it is not gone before these are
            self._take_back(session.folders.paths, job)
        elif self._has_users:
            self._closers[session] = job  # until the files are taken back
        else:
            self._pending.answer(job, Answer())

    def _close_session(self, number: int, why: str = "the session was closed") -> None:
        if (session := self._sessions.pop(number, None)) is not None:
            self._ends[number] = why
            if len(self._ends) > _MAX_ENDS:
                del self._ends[next(iter(self._ends))]
            self._pending.refuse_all(session, why)
            self._retire(session)

    def _retire(self, session: LiveSession) -> None:
        self._restores.pop(session, None)
        self.boxes.close(session, Failure("the session was closed", stopped=1))
        for fork in {fork for fork in self._forks.values() if fork.parent is session}:
            fork.abort(_SESSION_GONE)
        if session not in self._closing:
            self._closing.append(session)
        self.pool.kill_orphans_soon()
        session.close()

    def _init_pids(self) -> set[int] | None:
        """Return the process IDs of all first processes, or None if one is not known yet."""
        pids = {
            session.init.pid
            for session in (*self._active_sessions(), *self._closing)
            if session.state is not State.CLOSED or session.init.pid
        }
        return None if 0 in pids else pids

    # branches

    def _fork(self, job: SessionJob[ForkSession], session: LiveSession) -> None:
        """Fork branches into cells below the session's, each with folders of its own."""
        fork = Fork(job, session, self._loop, self._mount_client, self._on_fork_end)
        for requested in job.order.branches:
            branch = self._create_session()
            if requested.folder:
                branch.set_folders(WritableFolders([requested.folder]))
            else:
                self._set_folders(requested.mounts, branch)
            self._forks[branch] = fork
            fork.add(branch, requested)
        # Without control groups, the kernel counts the processes of a user in a user namespace.
        fork.start(at_once=len(fork.branches) if self.pool.cgroups.parents else 1)

    def _on_fork_end(self, fork: Fork, failure: Answer | None) -> None:
        for branch, requested in fork.branches.items():
            del self._forks[branch]
            if failure is None:
                self._register(requested.session, branch, requested.delete)
                branch.pending_checkpoint = fork.job.order.rollback_checkpoints
            else:
                self._retire(branch)
        self._pending.answer(fork.job, failure or Answer())

    # blocks in a new process

    def _add_program(self, job: Job, session: LiveSession) -> None:
        self._programs = {
            number: program
            for number, program in self._programs.items()
            if number in self._fetching or self.pool.has(number)
        }
        self._programs[job.number] = job, session
        self._fetching.add(job.number)

    def _end_programs(self, session: LiveSession) -> None:
        """End the programs of a session that is being stopped."""
        failure = Failure("the session was closed", stopped=1)
        for number, (job, owner) in self._programs.items():
            if owner is not session:
                continue
            if number in self._fetching:
                self._fetching.remove(number)
                self._pending.answer(job, failure)
            elif self.pool.has(number):
                self._loop.send(failure.encode(number))  # the caller ignores the ending
                self.pool.cancel(number)

    def _on_program_fetched(
        self, job: Job, mounts: Sequence[MountSpec], descriptors: list[int], error: str
    ) -> None:
        if job.number not in self._fetching:
            self._pending.answer(job, job.cancelled_ending())
        elif error:
            self._pending.refuse(job, error)
        elif not descriptors:
            self.pool.submit(job)
        else:
            self.pool.submit_with_mounts(job, mounts, descriptors)
        self._fetching.discard(job.number)
        self._pending.hand_over(job)  # the pool answers

    # time

    def next_deadline(self) -> float:
        """Return the time at which `on_timer` must be called."""
        if self._closing:
            return time.monotonic() + 0.005
        deadline = min(self._refill_at, self._release_at, self.boxes.next_deadline())
        for session in self._active_sessions():
            deadline = min(deadline, session.next_deadline())
        return min([deadline, *(fork.deadline for fork in {*self._forks.values()})])

    def _active_sessions(self) -> list[LiveSession]:
        return [*self._sessions.values(), *([self._spare] if self._spare is not None else [])]

    def on_timer(self) -> None:
        """Do the work that is due."""
        now = time.monotonic()
        if now >= self._refill_at:
            self._refill_at = FOREVER
            if self._spare is None and (self._waiting or are_free(MOST_PER_REQUEST)):
                self._make_spare()
        if now >= self._release_at:
            self._release_at = now + _RELEASE_INTERVAL if HeldFile.release_all() else FOREVER
        for session in self._active_sessions():
            if now >= session.next_deadline():
                run_contained(functools.partial(session.on_timer, now), session.on_fault)
        self.boxes.on_timer(now)
        for fork in {*self._forks.values()}:
            if now >= fork.deadline:
                fork.expire()
        gone = [session for session in self._closing if _is_gone(session)]
        self._closing = [session for session in self._closing if session not in gone]
        if self._has_users:
            for session in gone:
                self._take_back(session.folders.paths, self._closers.pop(session, None))

    def _take_back(self, folders: Sequence[str], job: SessionJob[SessionOrder] | None) -> None:
        """Take back what other users of a session's box have left, and answer `job`."""

        def on_done(error: str) -> None:
            if job is not None:
                self._pending.answer(job, Answer(error=error or None))

        try:
            self._mount_client.take_back(folders, on_done)
        except OSError as error:
            on_done(describe(error))

    def close(self) -> None:
        """End all sessions and wait until their cells are gone."""
        for session in self._active_sessions():
            self._retire(session)
        if not self._has_users:
            self._mount_client.close()
        self._await_end()
        for session in self._closing:
            session.init.kill()
        self._await_end()
        if self._has_users:
            self._mount_client.take_back_all()

    def _await_end(self) -> None:
        deadline = time.monotonic() + _CLOSE_GRACE
        while self._closing and time.monotonic() < deadline:
            # Branches first: the cell that contains them remains until they are gone.
            self._closing = [
                session for session in reversed(self._closing) if not _is_gone(session)
            ]
            if self._closing:
                time.sleep(0.001)


def _is_gone(session: LiveSession) -> bool:
    try:
        return session.init.remove_if_ended()
    except OSError:  # the next timer tries again
        return False


def _carry_out(order: DropCheckpoint | MeasureCpu, session: LiveSession) -> Answer:
    if isinstance(order, MeasureCpu):
        return Answer(cpu=session.init.total_cpu_seconds())
    session.checkpoints.drop_named(order.key)
    return Answer()
