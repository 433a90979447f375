"""All sessions of one server: a spare one, those that are open, and those that are ending.

A `SESSION_REQUEST` frame has an `op`. The manager carries out `open`, `close`, `fork` (a branch),
`resume` and `drop` (a named checkpoint), and `program` (a block in a new process that sees the
session's folders). It forwards the rest to the session: `run`, `get`, `set`, `variables`, `flush`,
`checkpoint` and `kill`.
"""

from __future__ import annotations

import errno
import functools
import os
import socket
import time
from typing import Any

from ... import handshake, protocol
from ...linux.held_file import HeldFile
from ..cell import Job
from ..descriptors import MOST_PER_REQUEST, are_free
from ..event_loop import FOREVER
from ..faults import DESCRIPTOR_LIMIT, describe, run_contained
from ..interfaces import FrameSender
from ..mount_client import MountClient, NoMounts
from ..pool import Pool
from ..storage import WritableFolders, mounted_folders
from .pending import PendingRequests
from .session import LiveSession

_REFILL_DELAY = 0.02  # seconds, in which a new session can start its work undisturbed
_CLOSE_GRACE = 2.0  # seconds for a first process to end
_MAX_FAILURES = 3
_MAX_REMEMBERED_RUNS = 100  # before those that are over are forgotten
_RELEASE_INTERVAL = 1.0  # seconds for which files that need not stay open may do so
_OPENING = frozenset({"open", "fork", "checkpoint", "program"})  # need descriptors of the server
_BRANCH_TIMEOUT = 30.0  # seconds, far more than a loaded machine needs
_PARTLY_FORKED = "it would be without the variables that could not be loaded: "
_NOT_FORKED_BY_VALUES = (
    "the checkpoint holds values of variables only, because of threads. In a container no branch "
    "can start from it"
)
_SESSION_GONE = "the session does not exist: it was closed or has failed"
_CHECKPOINT_GONE = "the checkpoint is gone: user code or the OOM killer ended its process"
_BRANCH_ORDER = {"op": "branch", "wall_seconds": _BRANCH_TIMEOUT}


class SessionManager:
    """The sessions that one zygote forks for one server."""

    def __init__(
        self,
        loop: FrameSender,
        pool: Pool,
        zygote: socket.socket,
        mount_socket: socket.socket | None,
        spec: dict[str, Any],
    ) -> None:
        self._loop, self._pool, self._zygote, self._spec = loop, pool, zygote, spec
        self._mount_client = (
            MountClient(loop, mount_socket) if mount_socket is not None else NoMounts()
        )
        pool.other_inits = self._init_pids
        self._sessions: dict[int, LiveSession] = {}
        self._folders_to_delete: dict[int, list[str]] = {}
        self._spare: LiveSession | None = None
        self._spare_is_ready = False
        self._waiting: list[Job] = []
        self._pending = PendingRequests(loop)
        self._closing: list[LiveSession] = []
        self._pending_branches: dict[LiveSession, float] = {}  # with their deadlines
        self._sessions_by_run: dict[int, LiveSession] = {}
        self._fetching = set[int]()  # the numbers of programs whose mounts are being fetched
        self._created = self._failures = 0
        self._refill_at, self._release_at = time.monotonic(), FOREVER

    # requests

    def handle_request(self, frame: protocol.Frame, request: dict[str, Any]) -> None:
        """Carry out a request or forward it to its session."""
        job = Job(frame.run, request, time.monotonic())
        session = self._sessions.get(request["session"])
        self._pending.add(job, session)
        self._release_at = min(self._release_at, job.arrived + _RELEASE_INTERVAL)
        count = MOST_PER_REQUEST + len(request.get("mounts", ()))
        if request["op"] in _OPENING and not are_free(count):
            self._pending.refuse(job, DESCRIPTOR_LIMIT, full=True)
        elif request["op"] == "open":
            self._waiting.append(job)
            self._hand_out_spare()
        elif session is None:
            self._pending.refuse(job, _SESSION_GONE, lost=True)
        else:
            on_fault = functools.partial(self._on_request_fault, job, session)
            run_contained(functools.partial(self._handle, job, session, frame), on_fault)

    def _handle(self, job: Job, session: LiveSession, frame: protocol.Frame) -> None:
        request = job.request
        match request["op"]:
            case "close":
                self._close_session(request["session"])
                self._pending.answer(job, {})
            case "kill" if not session.checkpoints.has_named(request["checkpoint_key"]):
                self._pending.answer(job, {"error": _CHECKPOINT_GONE})
            case "resume":
                self._resume_checkpoint(job, session)
            case "drop":
                session.checkpoints.drop_named(request["checkpoint_key"])
                self._pending.answer(job, {})
            case "fork":
                self._fork_branch(job, session)
            case "program":
                self._fetching.add(job.number)
                self._mount_client.fetch(
                    request["mounts"], functools.partial(self._on_program_fetched, job)
                )
            case _:
                if len(self._sessions_by_run) > _MAX_REMEMBERED_RUNS:
                    self._sessions_by_run = {
                        number: other
                        for number, other in self._sessions_by_run.items()
                        if other.request is not None
                    }
                self._sessions_by_run[frame.run] = session
                session.submit(job, payload=frame.payload)
                self._pending.hand_over(job)  # the session answers

    def _on_request_fault(self, job: Job, session: LiveSession, error: Exception) -> None:
        """Refuse a request, and end its session if that has begun to work on it."""
        self._pending.refuse(job, describe(error))
        is_begun = session.request is not None and session.request.run.number == job.number
        if is_begun or job.request["op"] == "resume":
            session.on_fault(error)

    def send_data(self, frame: protocol.Frame) -> None:
        """Forward a chunk of a value, or a line of input."""
        if (session := self._sessions_by_run.get(frame.run)) is not None:
            session.send_data(frame)

    def cancel_run(self, number: int) -> bool:
        """Stop run `number`. Return False if no session has such a run."""
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
        if self._waiting and self._spare is not None and self._spare_is_ready:
            session, self._spare, self._spare_is_ready = self._spare, None, False
            session.on_ready = lambda: None
            if self._spec.get("spare_sessions", True):
                self._refill_at = time.monotonic() + _REFILL_DELAY
            job = self._waiting.pop(0)
            run_contained(functools.partial(self._open_session, job, session), session.on_fault)
        if self._waiting and self._spare is None:
            self._make_spare()

    def _make_spare(self) -> None:
        self._refill_at = FOREVER
        try:
            session = self._spare = self._create_session()
            session.on_ready = self._on_spare_ready
            session.on_gone = self._on_spare_gone
            socket.send_fds(self._zygote, [handshake.SESSION], [session.init.peer_fd])
            session.init.close_peer()
        except (OSError, MemoryError) as error:
            self._on_spare_gone(describe(error))

    def _create_session(self) -> LiveSession:
        self._created += 1
        return LiveSession(self._loop, f"session-{self._created}", self._spec, self._pool.cgroups)

    def _on_spare_ready(self) -> None:
        self._spare_is_ready, self._failures = True, 0
        self._hand_out_spare()

    def _on_spare_gone(self, why: str) -> None:
        if self._spare is not None:
            self._retire(self._spare)
        self._spare, self._spare_is_ready = None, False
        self._failures += 1
        if self._failures < _MAX_FAILURES or self._waiting:
            self._refill_at = time.monotonic() + _REFILL_DELAY
        if self._failures >= _MAX_FAILURES:
            for job in self._waiting:
                self._pending.refuse(job, why)
            self._waiting.clear()

    # open and close

    def _open_session(self, job: Job, session: LiveSession) -> None:
        """Mount the folders of a session and let it change to its work folder."""
        number = job.request["session"]
        self._pending.add(job, session)
        session.on_gone = functools.partial(self._close_session, number)
        self._register(number, session, job)
        self._mount_client.fetch(
            job.request["mounts"], functools.partial(self._on_session_fetched, job, session)
        )

    def _on_session_fetched(
        self, job: Job, session: LiveSession, mounts: list[int], error: str
    ) -> None:
        if job not in self._pending:  # the session has ended meanwhile
            return
        if error:
            self._close_session(job.request["session"], error)
            return
        targets = [mount["target"] for mount in job.request["mounts"]]
        self._set_folders(job, session)
        session.init.send_order(
            {"op": "mount", "targets": targets},
            mounts,
            functools.partial(self._on_mounted, job, session),
        )

    def _set_folders(self, job: Job, session: LiveSession) -> None:
        paths = [*self._spec["writable"], *mounted_folders(job.request["mounts"]).paths]
        session.folders = WritableFolders(paths)

    def _on_mounted(self, job: Job, session: LiveSession, answer: dict[str, Any]) -> None:
        if "error" in answer:
            self._close_session(job.request["session"], answer["error"])
            return
        self._pending.hand_over(job)  # the session answers
        session.submit(Job(job.number, {"op": "enter"}, job.arrived))

    def _register(self, number: int, session: LiveSession, job: Job) -> None:
        self._sessions[number] = session
        self._folders_to_delete[number] = job.request["delete"]
        self._spec["delete"] += job.request["delete"]

    def _close_session(self, number: int, why: str = "the session was closed") -> None:
        for path in self._folders_to_delete.pop(number, ()):
            # Needed only if the server ends first: the client that closes a session deletes them.
            self._spec["delete"].remove(path)
        if (session := self._sessions.pop(number, None)) is not None:
            self._pending.refuse_all(session, why)
            self._retire(session)

    def _retire(self, session: LiveSession) -> None:
        self._pending_branches.pop(session, None)
        if session not in self._closing:
            self._closing.append(session)
        self._pool.kill_orphans_soon()
        session.close()

    def _init_pids(self) -> set[int] | None:
        """Return the process IDs of all first processes, or None if one is not known yet."""
        pids = {
            session.init.pid
            for session in (*self._active_sessions(), *self._closing)
            if not session.closing or session.init.pid
        }
        return None if 0 in pids else pids

    # named checkpoints and branches

    def _resume_checkpoint(self, job: Job, session: LiveSession) -> None:
        def on_ready() -> None:
            session.on_ready = lambda: None
            error = session.restored_state.take_error()
            self._pending.answer(job, {"error": error} if error else {})
            session.begin_rollback_checkpoint(job.request)

        session.on_ready = on_ready
        session.resume_checkpoint(job.request["checkpoint_key"])

    def _fork_branch(self, job: Job, session: LiveSession) -> None:
        """Fork a branch into a cell below the session's, with folders of its own."""
        if "folder" in job.request:
            self._fork_in_container(job, session)
        else:
            self._mount_client.fetch(
                job.request["mounts"], functools.partial(self._on_branch_fetched, job, session)
            )

    def _create_branch(self, job: Job, session: LiveSession) -> LiveSession:
        branch = self._create_session()
        self._set_folders(job, branch)
        branch.init.parent = session.init
        session.init.branches.add(branch.init)
        branch.on_gone = functools.partial(self._on_branch_gone, job, session, branch)
        # A little later than the limit of the order itself, whose error says more.
        self._pending_branches[branch] = time.monotonic() + _BRANCH_TIMEOUT + _CLOSE_GRACE
        return branch

    def _fork_in_container(self, job: Job, session: LiveSession) -> None:
        """Fork a branch without namespaces.

        A fork of the session becomes the first process of the branch's cell, and forks the branch.
        """
        branch = self._create_branch(job, session)
        branch.in_work_folder = True
        branch.on_ready = functools.partial(self._on_branch_ready, job, branch)
        order = {**_BRANCH_ORDER, "folder": job.request["folder"]}
        key = job.request.get("checkpoint_key")
        if key is None:
            branch.blocks = branch.base_blocks = session.blocks
            if session.submit(Job(job.number, order, job.arrived), [branch.init.peer_fd]) is None:
                self._retire(branch)
            else:
                session.on_answer = functools.partial(self._on_branch_answer, job, branch)
        elif not session.checkpoints.has_named(key):
            self._on_branch_gone(job, session, branch, _CHECKPOINT_GONE)
        else:
            handle = session.checkpoints.named[key]
            if handle.by_value:
                self._on_branch_gone(job, session, branch, _NOT_FORKED_BY_VALUES)
                return
            branch.blocks = branch.base_blocks = handle.blocks
            handle.send_order(order, [branch.init.peer_fd])
            branch.init.close_peer()

    def _on_branch_fetched(
        self, job: Job, session: LiveSession, mounts: list[int], error: str
    ) -> None:
        if error:
            self._pending.refuse(job, error)
            return
        branch = self._create_branch(job, session)
        branch.init.on_hello = functools.partial(self._on_branch_hello, job, session, branch)
        targets = [mount["target"] for mount in job.request["mounts"]]
        try:
            # No user code may run while it could reach the branch's first process, which is not
            # confined yet.
            session.pause()
            session.init.send_order(
                {"op": "branch", "targets": targets}, [branch.init.peer_fd, *mounts]
            )
        except (OSError, MemoryError) as fault:
            branch.on_fault(fault)
        branch.init.close_peer()

    def _on_branch_hello(self, job: Job, session: LiveSession, branch: LiveSession) -> None:
        session.unpause()
        if len(branch.init.namespaces) < handshake.NAMESPACES:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        branch.on_ready = functools.partial(self._on_branch_ready, job, branch)
        branch.blocks = session.blocks
        key = job.request.get("checkpoint_key")
        handle = None
        if key is not None and session.checkpoints.has_named(key):
            handle = session.checkpoints.named[key]
        if handle is not None and handle.by_value:
            branch.start_with_variables(handle, is_branch=True)
            return
        channel = branch.create_main_channel()
        passed = [*branch.init.namespaces, channel.peer_fd, *branch.output.writers]
        if handle is not None:
            handle.send_order(_BRANCH_ORDER, passed)
            channel.close_peer()
            return
        if key is not None:
            self._on_branch_gone(job, session, branch, _CHECKPOINT_GONE)
            return
        request = session.submit(Job(job.number, _BRANCH_ORDER, job.arrived), passed)
        channel.close_peer()
        if request is None:
            self._retire(branch)
        else:
            session.on_answer = functools.partial(self._on_branch_answer, job, branch)

    def _on_branch_answer(self, job: Job, branch: LiveSession, answer: dict[str, Any]) -> None:
        """Handle the session's answer: report an error, or wait until the branch is ready."""
        branch.init.close_peer()
        if "refused" in answer or "error" in answer:
            self._retire(branch)
            self._pending.answer(job, answer)
        elif branch.main_ready:
            self._on_branch_open(job, branch)
        else:
            branch.on_ready = functools.partial(self._on_branch_open, job, branch)

    def _on_branch_ready(self, job: Job, branch: LiveSession) -> None:
        if job.request.get("checkpoint_key") is not None:
            self._on_branch_open(job, branch)

    def _on_branch_open(self, job: Job, branch: LiveSession) -> None:
        if branch.base_blocks is None and branch.restored_state.was_lost:
            branch.on_gone("its process was killed")
            return
        if lost := branch.restored_state.lost_variables:
            branch.on_gone(_PARTLY_FORKED + ", ".join(lost))
            return
        number = job.request["new_session"]
        self._pending_branches.pop(branch, None)
        branch.on_ready = lambda: None
        branch.on_gone = functools.partial(self._close_session, number)
        branch.init.close_namespaces()
        self._register(number, branch, job)
        self._pending.answer(job, {})
        branch.init.measure_main()
        branch.pending_checkpoint = job.request

    def _on_branch_gone(
        self, job: Job, session: LiveSession, branch: LiveSession, why: str
    ) -> None:
        self._pending.answer(job, {"error": f"The branch could not be forked: {why}"})
        self._retire(branch)
        session.unpause()

    # blocks in a new process

    def _on_program_fetched(self, job: Job, mounts: list[int], error: str) -> None:
        if job.number not in self._fetching:
            self._pending.answer(job, job.cancelled_ending(), protocol.ENDED)
        elif error:
            self._pending.refuse(job, error)
        elif not mounts:
            self._pool.submit(job)
        else:
            targets = [mount["target"] for mount in job.request["mounts"]]
            self._pool.submit_with_mounts(job, targets, mounts)
        self._fetching.discard(job.number)
        self._pending.hand_over(job)  # the pool answers

    # time

    def next_deadline(self) -> float:
        """Return the time at which `on_timer` must be called."""
        if self._closing:
            return time.monotonic() + 0.005
        deadline = min(self._refill_at, self._release_at)
        for session in self._active_sessions():
            deadline = min(deadline, session.next_deadline())
        return min([deadline, *self._pending_branches.values()])

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
        for branch, deadline in list(self._pending_branches.items()):
            if now >= deadline:
                branch.on_gone(f"it did not start within {_BRANCH_TIMEOUT:.0f} s")
        self._closing = [session for session in self._closing if not _is_gone(session)]

    def close(self) -> None:
        """End all sessions and wait until their cells are gone."""
        for session in self._active_sessions():
            self._retire(session)
        self._mount_client.close()
        self._await_end()
        for session in self._closing:
            session.init.kill()
        self._await_end()

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
