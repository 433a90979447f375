"""A fork under way: branches of a session that are not open yet.

Two helpers work at the same time. The first process of the session forks the one that makes the
first processes of the branches. The session forks the one that enters the namespaces of each, one
after the other, and forks the branch's process there. So a branch costs one fork of the session.

The branches of a batch share a user namespace, in which none of their processes has a capability.
Each has its own namespaces for processes, mounts, ipc and network. Its process starts in its
control groups, because the helper is moved into these before.
"""

from __future__ import annotations

import enum
import errno
import functools
import os
import time
from collections import deque
from collections.abc import Callable

from ... import handshake
from ...messages import Answer, CopyTemporaryFolders, ForkBranchInits, ForkNext, RunTerms
from ...session_orders import ForkBranches, ForkSession, NewBranch
from ..event_loop import FOREVER
from ..faults import describe
from ..interfaces import FrameSender
from ..mount_client import MountClient, NoMounts
from .fault_boundary import FaultBoundary
from .fork_helper import ForkHelper
from .request import SessionJob
from .session import LiveSession

_TIMEOUT = 30.0  # seconds for a batch, far more than a loaded machine needs
_SECONDS_PER_BRANCH = 1.0  # in addition, for the second and later ones
_GRACE = 2.0  # seconds after that for the session's answer
_PARTLY_FORKED = "it would be without the variables that could not be loaded: "
_NOT_FORKED_BY_VALUES = (
    "the checkpoint holds values of variables only, because of threads. In a container no branch "
    "can start from it"
)
CHECKPOINT_GONE = "the checkpoint is gone: user code or the OOM killer ended its process"


class Step(enum.Enum):
    """What a fork waits for.

    CELL        the first cell of a batch. The session is stopped: no user code may run while it
                could reach the helper that makes the cells, which is not confined yet
    PROCESSES   the other cells, the branches' processes, and the answer of the session, unless a
                checkpoint forks
    ENDED       nothing
    """

    CELL = enum.auto()
    PROCESSES = enum.auto()
    ENDED = enum.auto()


class Fork:
    """The fork of `branches` from `parent`, or from a checkpoint of it, as `job` requests it.

    `on_end` is called once: with None if the branches can be opened, else with the failure. What
    happens after that is ignored. From `deadline` on, call `expire`.
    """

    def __init__(
        self,
        job: SessionJob[ForkSession],
        parent: LiveSession,
        loop: FrameSender,
        mount_client: MountClient | NoMounts,
        on_end: Callable[[Fork, Answer | None], None],
    ) -> None:
        self.job, self.parent = job, parent
        self.branches: dict[LiveSession, NewBranch] = {}
        self.deadline = FOREVER
        self._loop = FaultBoundary(loop, lambda error: self.fail(describe(error)))
        self._mount_client, self._on_end = mount_client, on_end
        key = job.order.key
        self._checkpoint = parent.checkpoints.named[key] if key is not None else None
        self._step = Step.PROCESSES
        self._at_once = 0
        # Branches that are not in a batch yet, or do not have the next process yet.
        self._later = deque[LiveSession]()
        self._without_cell, self._without_process = deque[LiveSession](), deque[LiveSession]()
        self._unready = set[LiveSession]()  # of the batch
        self._unforked = 0  # of the batch: the processes for which the helper has no order yet
        self._has_order = False  # the session, which has not answered yet
        self._failure: Answer | None = None  # while the session has not answered yet
        self._cell_helper: ForkHelper | None = None
        self._process_helper: ForkHelper | None = None

    def add(self, branch: LiveSession, requested: NewBranch) -> None:
        """Add a branch."""
        self.branches[branch] = requested
        self._later.append(branch)
        branch.blocks = (self._checkpoint or self.parent).blocks
        if self._is_in_container:
            branch.base_blocks, branch.in_work_folder = branch.blocks, True
        branch.init.parent = self.parent.init
        self.parent.init.branches.add(branch.init)

    @property
    def _is_in_container(self) -> bool:
        return any(branch.folder for branch in self.branches.values())

    @property
    def _is_by_value(self) -> bool:
        return self._checkpoint is not None and self._checkpoint.by_value

    def start(self, *, at_once: int) -> None:
        """Fork the branches, in batches of `at_once`, but all at once in a container."""
        self._at_once = len(self.branches) if self._is_in_container else at_once
        if self._is_in_container and self._is_by_value:
            self.fail(_NOT_FORKED_BY_VALUES)
        else:
            self._start_batch()

    def _start_batch(self) -> None:
        self._close_helpers()
        batch = [self._later.popleft() for _ in range(min(self._at_once, len(self._later)))]
        self._unready.update(batch)
        self._unforked = len(batch)
        self.deadline = time.monotonic() + _TIMEOUT + _SECONDS_PER_BRANCH * (len(batch) - 1)
        if self._is_in_container:
            self._without_process.extend(batch)
            self._order_processes()
        else:
            self._without_cell.extend(batch)
            self._order_cells(batch[0])

    def _order_cells(self, first: LiveSession) -> None:
        """Let the session's first process fork the helper that forks those of the branches."""
        self._step = Step.CELL
        self.parent.orphans.pause(self.parent.main)
        helper = self._cell_helper = ForkHelper(self._loop, self._fork_cell, self.fail)
        order = ForkBranchInits(self._targets(first), self.parent.main_inner_pid)
        self.parent.init.send_order(order, [helper.peer_fd])
        helper.close_peer()

    def _targets(self, branch: LiveSession) -> tuple[str, ...]:
        return tuple(mount.target for mount in self.branches[branch].mounts)

    def _fork_cell(self, helper: ForkHelper) -> None:
        """Let the helper, which is ready, fork the first process of the next branch."""
        if not self._without_cell:
            helper.close()
            return
        branch = self._without_cell.popleft()

        def send(mounts: list[int], error: str) -> None:
            if error:
                self.fail(error)
            else:
                order = ForkNext(self._targets(branch))
                helper.send(order, [branch.init.peer_fd, *mounts])
                branch.init.close_peer()

        self._mount_client.fetch(self.branches[branch].mounts, send)

    def on_hello(self, branch: LiveSession) -> None:
        """Let the process of `branch` be forked: its first process is ready."""
        if self._is_in_container:
            branch.start()
        else:
            on_copied = functools.partial(self._on_copied, branch)
            branch.init.send_order(CopyTemporaryFolders(), [], on_copied)

    def _on_copied(self, branch: LiveSession, error: str) -> None:
        if self._step is Step.ENDED:
            return
        if error:
            self.fail(error)
            return
        is_first, self._step = self._step is Step.CELL, Step.PROCESSES
        if is_first:
            self.parent.orphans.unpause(self.parent.main)
        if len(branch.init.namespaces) < handshake.NAMESPACES:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        if self._checkpoint is not None and self._checkpoint.by_value:
            branch.start_with_variables(self._checkpoint, is_branch=True)
            branch.init.close_namespaces()
            return
        self._without_process.append(branch)
        if is_first:
            self._order_processes()
        elif self._process_helper is not None:
            self._fork_process(self._process_helper)

    def _order_processes(self) -> None:
        """Let the session or the checkpoint fork the helper that forks the branches' processes.

        In a container it forks their first processes, which fork the branches later: without
        namespaces no other process could have the same memory.
        """
        helper = self._process_helper = ForkHelper(self._loop, self._fork_process, self.fail)
        order = ForkBranches(RunTerms(self.deadline - time.monotonic() + _GRACE))
        if self._checkpoint is not None:
            self._checkpoint.send_order(order, [helper.peer_fd])
            helper.close_peer()
            return
        job = SessionJob(self.job.number, order, self.job.arrived)
        failure = self.parent.submit(job, [helper.peer_fd], on_answer=self._on_answer)
        if failure is not None:
            self.fail(str(failure.error))
        self._has_order = failure is None

    def _fork_process(self, helper: ForkHelper) -> None:
        """Let the helper fork the process of the next branch, if both are ready."""
        helper.close_peer()
        if not helper.is_ready:
            return
        if self._without_process:
            branch = self._without_process.popleft()
            self._unforked -= 1
            if self._is_in_container:
                order = ForkNext(folder=self.branches[branch].folder)
                helper.send(order, [branch.init.peer_fd])
                branch.init.close_peer()
                return
            branch.init.add_process(helper.pid)
            main = branch.create_main_channel()
            passed = [*branch.init.namespaces, main.peer_fd, *branch.output.writers]
            helper.send(ForkNext(), passed)
            main.close_peer()
            branch.init.close_namespaces()
        elif not self._unforked:
            helper.close()

    def _on_answer(self, answer: Answer) -> None:
        """Handle the session's answer to the order."""
        self._has_order = False
        failure = self._failure or (answer if answer.has_failed else None)
        if failure is not None:
            self._end(failure)
        else:
            self._finish_batch()

    def on_ready(self, branch: LiveSession) -> None:
        """The process of `branch` is ready."""
        if branch.base_blocks is None and branch.restored_state.was_lost:
            self.fail("its process was killed")
        elif lost := branch.restored_state.lost_variables:
            self.fail(_PARTLY_FORKED + ", ".join(lost))
        else:
            if not self._is_in_container and not self._is_by_value:
                branch.init.adopt_main(branch.main_inner_pid)
            self._unready.discard(branch)
            self._finish_batch()

    def _finish_batch(self) -> None:
        if self._unready or self._has_order or self._step is Step.ENDED:
            return
        if self._later:
            self._start_batch()
        else:
            self._end(None)

    def expire(self) -> None:
        """Fail: the deadline has passed. The order has a limit of its own, a bit later."""
        self.deadline = FOREVER
        if not self._has_order or (self._process_helper and self._process_helper.pid):
            self.fail(f"it did not start within {_TIMEOUT:.0f} s")

    def fail(self, why: str) -> None:
        """Give up the branches. The session answers first: until then it is busy."""
        self._failure = self._failure or Answer(error=f"The branch could not be forked: {why}")
        if self._process_helper is not None:
            self._process_helper.kill()  # its code may hang
        if not self._has_order:
            self._end(self._failure)

    def abort(self, why: str) -> None:
        """Give up the branches now: the session is being closed."""
        self._has_order = False
        self.fail(why)

    def _end(self, failure: Answer | None) -> None:
        if self._step is not Step.ENDED:
            step, self._step = self._step, Step.ENDED
            try:
                if step is Step.CELL:
                    self.parent.orphans.unpause(self.parent.main)
            finally:  # whatever fails, the caller gets an answer
                self._close_helpers()
                self._on_end(self, failure)

    def _close_helpers(self) -> None:
        for helper in (self._cell_helper, self._process_helper):
            if helper is not None:
                helper.close()
