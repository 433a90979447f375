"""A fork under way: a branch of a session that is not open yet."""

from __future__ import annotations

import enum
import errno
import os
import time
from collections.abc import Callable

from ... import handshake
from ...messages import Answer, ForkBranchInit
from ..cell import Job
from .session import LiveSession

_TIMEOUT = 30.0  # seconds, far more than a loaded machine needs
_GRACE = 2.0  # seconds after the limit of the order itself, whose error says more
_PARTLY_FORKED = "it would be without the variables that could not be loaded: "
_NOT_FORKED_BY_VALUES = (
    "the checkpoint holds values of variables only, because of threads. In a container no branch "
    "can start from it"
)
CHECKPOINT_GONE = "the checkpoint is gone: user code or the OOM killer ended its process"
_ORDER = {"op": "branch", "wall_seconds": _TIMEOUT}


class Step(enum.Enum):
    """What a fork waits for.

    CELL      the first process of the branch's cell. The session is stopped: no user code may run
              while it could reach that process, which is not confined yet
    PROCESS   the answer of the session, unless a checkpoint forks, and the branch's own process
    ENDED     nothing
    """

    CELL = enum.auto()
    PROCESS = enum.auto()
    ENDED = enum.auto()


class Fork:
    """The fork of `branch` from `parent`, or from a checkpoint of it, as `job` requests it.

    `on_end` is called once: with None if the branch can be opened, else with the failure. What
    happens after that is ignored. From `deadline` on, call `expire`.
    """

    def __init__(
        self,
        job: Job,
        parent: LiveSession,
        branch: LiveSession,
        on_end: Callable[[Fork, Answer | None], None],
    ) -> None:
        self.job, self.parent, self.branch = job, parent, branch
        self._on_end = on_end
        self._key: str | None = job.request.get("checkpoint_key")
        self._is_in_container = "folder" in job.request
        self._step = Step.CELL
        self._is_answered = self._key is not None  # a checkpoint answers nothing
        self._failure: Answer | None = None  # of the branch, while the session is not ready yet
        self.deadline = time.monotonic() + _TIMEOUT + _GRACE
        branch.init.parent = parent.init
        parent.init.branches.add(branch.init)

    def order_cell(self, mounts: list[int]) -> None:
        """Let the session's first process fork that of the branch, with `mounts`."""
        targets = tuple(mount["target"] for mount in self.job.request["mounts"])
        try:
            self.parent.orphans.pause(self.parent.main)
            self.parent.init.send_order(
                ForkBranchInit(targets), [self.branch.init.peer_fd, *mounts]
            )
        except (OSError, MemoryError) as fault:
            self.branch.on_fault(fault)
        self.branch.init.close_peer()

    def on_hello(self) -> None:
        """Let the branch's process be forked: its first process is ready."""
        if self._is_in_container:
            self.branch.start()
            return
        self._step = Step.PROCESS
        self.parent.orphans.unpause(self.parent.main)
        if len(self.branch.init.namespaces) < handshake.NAMESPACES:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self.order_process()

    def order_process(self) -> None:
        """Let the session or the checkpoint fork the branch's process.

        In a container it forks the first process of the branch, which forks the branch later:
        without namespaces no other process could have the same memory.
        """
        self._step = Step.PROCESS
        parent, branch, handle = self.parent, self.branch, None
        if self._key is not None:
            if not parent.checkpoints.has_named(self._key):
                self.fail(CHECKPOINT_GONE)
                return
            handle = parent.checkpoints.named[self._key]
        branch.blocks = parent.blocks if handle is None else handle.blocks
        if handle is not None and handle.by_value:
            if self._is_in_container:
                self.fail(_NOT_FORKED_BY_VALUES)
            else:
                branch.start_with_variables(handle, is_branch=True)
            return
        order, passed = _ORDER, [branch.init.peer_fd]
        if self._is_in_container:
            branch.base_blocks, branch.in_work_folder = branch.blocks, True
            order = {**_ORDER, "folder": self.job.request["folder"]}
        else:
            channel = branch.create_main_channel()
            passed = [*branch.init.namespaces, channel.peer_fd, *branch.output.writers]
        if handle is not None:
            handle.send_order(order, passed)
            self._close_peers()
        elif failure := parent.submit(
            Job(self.job.number, order, self.job.arrived), passed, on_answer=self._on_answer
        ):
            self.fail(str(failure.error))

    def _close_peers(self) -> None:
        """Close our copies of the ends that were passed to the branch's processes."""
        self.branch.init.close_peer()
        if self.branch.main is not None:
            self.branch.main.close_peer()

    def _on_answer(self, answer: Answer) -> None:
        """Handle the session's answer to the order."""
        self._close_peers()
        failure = self._failure or (answer if answer.has_failed else None)
        if failure is not None:
            self._end(failure)
            return
        self._is_answered = True
        self.on_ready()

    def on_ready(self) -> None:
        """The branch may be open now: its process is ready, or the session has answered."""
        branch = self.branch
        if not (self._is_answered and branch.main_ready):
            return
        if branch.base_blocks is None and branch.restored_state.was_lost:
            self.fail("its process was killed")
        elif lost := branch.restored_state.lost_variables:
            self.fail(_PARTLY_FORKED + ", ".join(lost))
        else:
            self._end(None)

    def on_gone(self, why: str) -> None:
        """Fail: the branch's cell has failed. The session answers first: until then it is busy."""
        if self._step is Step.PROCESS and not self._is_answered:
            self._failure = _failure(why)
        else:
            self.fail(why)

    def expire(self) -> None:
        """Fail: the deadline has passed."""
        self.fail(f"it did not start within {_TIMEOUT:.0f} s")

    def fail(self, why: str) -> None:
        """Give up the branch."""
        self._end(_failure(why))

    def _end(self, failure: Answer | None) -> None:
        if self._step is not Step.ENDED:
            step, self._step = self._step, Step.ENDED
            if step is Step.CELL:
                self.parent.orphans.unpause(self.parent.main)
            self._on_end(self, failure)


def _failure(why: str) -> Answer:
    return Answer(error=f"The branch could not be forked: {why}")
