"""All live sessions of a server: one always ready in advance, those that are open, and those that are going.

Orders come as `wire.ASK` with ``op``: ``open``, ``close``, ``fork`` (a branch), ``halt`` and ``resume`` (back to a mark),
``drop``, ``program`` (a block for a fresh process over the session's folders), and what the session itself does: ``run``,
``get``, ``set``, ``variables``, ``keep``.
"""

from __future__ import annotations

import functools
import os
import socket
import time
from collections.abc import Callable
from typing import Any

from ... import protocol
from ...cell import init
from ..cell import Job
from ..interfaces import Owner
from ..mount_client import NoPorter, Porter
from ..pool import Pool
from .session import Live

_MOMENT = 0.02  # seconds until the next session is made in advance: the one that was just taken has work to do
_GRACE = 2.0  # seconds that a guard has to end
_TRIES = 3
_REMEMBERED = 100  # things that sessions were told to do, and that may be over
_BIRTH = 30.0  # seconds that a branch may take to come; far more than a loaded machine needs
_NOT_RESUMED = "The checkpoint did not answer, or ended: the session has been started afresh."
_BRANCH = {"op": "branch", "wall_seconds": _BIRTH}
_FOREVER = float("inf")


class Sessions:
    """The sessions that one zygote forks for one server."""

    def __init__(
        self,
        loop: Owner,
        pool: Pool,
        zygote: socket.socket,
        porter: socket.socket | None,
        spec: dict[str, Any],
    ) -> None:
        self._loop, self._pool, self._zygote, self._spec = loop, pool, zygote, spec
        self._porter = Porter(loop, porter) if porter is not None else NoPorter()
        pool.others = self._guards
        self._open: dict[int, Live] = {}
        self._delete: dict[int, list[str]] = {}
        self._spare: Live | None = None
        self._spare_ready = False
        self._waiting: list[Callable[[Live], None]] = []
        self._going: list[Live] = []
        self._coming: dict[
            Live, float
        ] = {}  # branches that are being made, and by when they must be
        self._runs: dict[int, Live] = {}
        self._count = self._failures = 0
        self._refill_at = time.monotonic()

    # orders

    def take(self, frame: protocol.Frame, request: dict[str, Any]) -> None:
        """Do what came in."""
        job = Job(frame.run, request, time.monotonic())
        if request["op"] == "open":
            self._obtain(functools.partial(self._furnish, job))
            return
        live = self._open.get(request["session"])
        if live is None:
            self._refuse(job, "there is no such session: it was closed, or has failed")
            return
        match request["op"]:
            case "close":
                self._close(request["session"])
                self._answer(job, {})
            case "resume":
                self._resume(job, live)
            case "drop":
                live.copies.drop(request["mark"])
                self._answer(job, {})
            case "fork":
                self._fork(job, live)
            case "program":
                self._porter.fetch(
                    request["mounts"], functools.partial(self._on_program_fetched, job)
                )
            case _:
                if len(self._runs) > _REMEMBERED:
                    self._runs = {
                        number: other
                        for number, other in self._runs.items()
                        if other.task is not None
                    }
                self._runs[frame.run] = live
                live.do(job, payload=frame.payload)

    def data(self, frame: protocol.Frame) -> None:
        """Pass on a piece of a value, or a line of input."""
        if (live := self._runs.get(frame.run)) is not None:
            live.data(frame)

    def cancel(self, number: int) -> bool:
        """End what run `number` is; tell whether there is such a run of a session."""
        live = self._runs.get(number)
        if live is None or live.task is None or live.task.run.number != number:
            return False
        live.end("cancelled")
        return True

    def _answer(self, job: Job, answer: dict[str, Any]) -> None:
        self._loop.send(protocol.encode_json(protocol.ANSWER, job.run, answer))
        self._loop.flush()

    def _refuse(self, job: Job, why: str) -> None:
        self._loop.send(protocol.encode_json(protocol.FAILED, job.run, {"error": why}))
        self._loop.flush()

    # made in advance

    def _obtain(self, then: Callable[[Live], None]) -> None:
        self._waiting.append(then)
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        if self._waiting and self._spare is not None and self._spare_ready:
            live, self._spare, self._spare_ready = self._spare, None, False
            live.on_ready = lambda: None
            if self._spec.get("spare_sessions", True):
                self._refill_at = time.monotonic() + _MOMENT
            self._waiting.pop(0)(live)
        if self._waiting and self._spare is None:
            self._make_spare()

    def _make_spare(self) -> None:
        self._refill_at = _FOREVER
        live = self._spare = self._new()
        live.on_ready = self._on_spare_ready
        live.on_gone = self._on_spare_gone
        socket.send_fds(self._zygote, [init.SESSION], [live.house.door])
        live.house.shown_in()

    def _new(self) -> Live:
        self._count += 1
        return Live(self._loop, f"session-{self._count}", self._spec, self._pool.groups)

    def _on_spare_ready(self) -> None:
        self._spare_ready, self._failures = True, 0
        self._serve_waiting()

    def _on_spare_gone(self, why: str) -> None:
        if self._spare is not None:
            self._bury(self._spare)
        self._spare, self._spare_ready = None, False
        self._failures += 1
        if self._failures < _TRIES or self._waiting:
            self._refill_at = time.monotonic() + _MOMENT
        if self._failures >= _TRIES:
            for then in self._waiting:
                assert isinstance(then, functools.partial)
                self._refuse(then.args[0], why)
            self._waiting.clear()

    # open and close

    def _furnish(self, job: Job, live: Live) -> None:
        """Give a session its folders, and let it enter them."""
        number = job.request["session"]
        self._enter(number, live, job)
        live.on_gone = lambda _why: self._close(number)
        self._porter.fetch(job.request["mounts"], functools.partial(self._on_fetched, job, live))

    def _on_fetched(self, job: Job, live: Live, mounts: list[int], error: str) -> None:
        if error:
            self._close(job.request["session"])
            self._refuse(job, error)
            return
        targets = [mount["target"] for mount in job.request["mounts"]]
        live.house.order(
            {"do": "mount", "targets": targets},
            mounts,
            functools.partial(self._on_mounted, job, live),
        )
        _close_all(mounts)

    def _on_mounted(self, job: Job, live: Live, answer: dict[str, Any]) -> None:
        if "error" in answer:
            self._close(job.request["session"])
            self._refuse(job, answer["error"])
            return
        live.do(Job(job.run, {"op": "enter"}, job.arrived))

    def _enter(self, number: int, live: Live, job: Job) -> None:
        self._open[number] = live
        self._delete[number] = job.request["delete"]
        self._spec["delete"] += job.request["delete"]

    def _close(self, number: int) -> None:
        for path in self._delete.pop(number, ()):
            self._spec["delete"].remove(
                path
            )  # whoever closes it removes its folders; this is for those who cannot
        if (live := self._open.pop(number, None)) is not None:
            live.close()
            self._bury(live)

    def _bury(self, live: Live) -> None:
        live.close()
        self._coming.pop(live, None)
        if live not in self._going:
            self._going.append(live)
        self._pool.end_strays()

    def _guards(self) -> set[int] | None:
        pids = {
            live.house.pid
            for live in (*self._living(), *self._going)
            if not live.closing or live.house.pid
        }
        return None if 0 in pids else pids

    # back to a mark, and branches

    def _resume(self, job: Job, live: Live) -> None:
        keeper = live.copies.marks.get(job.request["mark"])
        if keeper is None or not keeper.alive:
            self._refuse(
                job,
                "the checkpoint is gone: its process was ended by code in the session, or for want of memory",
            )
            return

        def ready() -> None:
            live.on_ready = lambda: None
            self._answer(job, {"error": _NOT_RESUMED} if live.is_lost else {})
            live.keep(job.request)

        live.on_ready = ready
        live.resume(job.request["mark"])

    def _fork(self, job: Job, live: Live) -> None:
        """Make a branch: a cell below the session's with folders of its own, and in it a fork of the session's process."""
        if "folder" in job.request:
            self._fork_beside(job, live)
        else:
            self._porter.fetch(
                job.request["mounts"], functools.partial(self._on_branch_fetched, job, live)
            )

    def _new_branch(self, job: Job, live: Live) -> Live:
        branch = self._new()
        branch.house.parent = live.house
        live.house.branches.add(branch.house)
        branch.on_gone = functools.partial(self._on_branch_gone, job, live, branch)
        # Where it is the session's own process that is held up, that is ended a little earlier, and tells why.
        self._coming[branch] = time.monotonic() + _BIRTH + _GRACE
        return branch

    def _fork_beside(self, job: Job, live: Live) -> None:
        """Where there are no namespaces, a fork of the session is the guard of the branch, and brings forth its process."""
        branch = self._new_branch(job, live)
        branch.entered = True
        branch.on_ready = functools.partial(self._on_branch_ready, job, branch)
        order, mark = {**_BRANCH, "folder": job.request["folder"]}, job.request.get("mark")
        if mark is None:
            branch.blocks = branch.birth = live.blocks
            if live.do(Job(job.run, order, job.arrived), [branch.house.door]) is None:
                self._bury(branch)
            else:
                live.on_answer = functools.partial(self._on_branch_answer, job, branch)
        elif (keeper := live.copies.marks.get(mark)) is None or not keeper.alive:
            self._on_branch_gone(job, live, branch, "the checkpoint is gone")
        else:
            branch.blocks = branch.birth = keeper.blocks
            keeper.order(order, [branch.house.door])
            branch.house.shown_in()

    def _on_branch_fetched(self, job: Job, live: Live, mounts: list[int], error: str) -> None:
        if error:
            self._refuse(job, error)
            return
        branch = self._new_branch(job, live)
        branch.house.on_hello = functools.partial(self._on_branch_hello, job, live, branch)
        targets = [mount["target"] for mount in job.request["mounts"]]
        live.pause(on=True)
        live.house.order({"do": "nest", "targets": targets}, [branch.house.door, *mounts])
        branch.house.shown_in()
        _close_all(mounts)

    def _on_branch_hello(self, job: Job, live: Live, branch: Live) -> None:
        live.pause(on=False)
        channel = branch.new_main()
        descriptors = [*branch.house.spaces, channel.hand_over(), *branch.valve.writers]
        branch.on_ready = functools.partial(self._on_branch_ready, job, branch)
        branch.blocks = live.blocks
        mark = job.request.get("mark")
        if mark is not None:
            if (keeper := live.copies.marks.get(mark)) is None or not keeper.alive:
                self._on_branch_gone(job, live, branch, "the checkpoint is gone")
            else:
                keeper.order(_BRANCH, descriptors)
                channel.sent()
            return
        task = live.do(Job(job.run, _BRANCH, job.arrived), descriptors)
        channel.sent()
        if task is None:
            self._bury(branch)
        else:
            live.on_answer = functools.partial(self._on_branch_answer, job, branch)

    def _on_branch_answer(self, job: Job, branch: Live, answer: dict[str, Any]) -> None:
        """The forked process has told what came of it: only bad news is passed on here."""
        branch.house.shown_in()
        if "refused" in answer or "error" in answer:
            self._bury(branch)
            self._answer(job, answer)
        elif branch.main_ready:
            self._on_branch_open(job, branch)
        else:
            branch.on_ready = functools.partial(self._on_branch_open, job, branch)

    def _on_branch_ready(self, job: Job, branch: Live) -> None:
        if job.request.get("mark") is not None:
            self._on_branch_open(job, branch)

    def _on_branch_open(self, job: Job, branch: Live) -> None:
        number = job.request["into"]
        self._coming.pop(branch, None)
        branch.on_ready = lambda: None
        branch.on_gone = lambda _why: self._close(number)
        branch.house.let_go_of_spaces()
        self._enter(number, branch, job)
        self._answer(job, {})
        branch.admit()
        branch.owed = job.request

    def _on_branch_gone(self, job: Job, live: Live, branch: Live, why: str) -> None:
        live.pause(on=False)
        self._bury(branch)
        self._answer(job, {"error": f"The branch could not be made: {why}"})

    # fresh processes beside a session

    def _on_program_fetched(self, job: Job, mounts: list[int], error: str) -> None:
        if error:
            self._refuse(job, error)
        elif not mounts:
            self._pool.add(job)
        else:
            self._pool.add_in(job, [mount["target"] for mount in job.request["mounts"]], mounts)
        _close_all(mounts)

    # time

    def patience(self) -> float:
        """Give the moment at which `tend` must be called."""
        if self._going:
            return time.monotonic() + 0.005
        moment = self._refill_at
        for live in self._open.values():
            moment = min(moment, live.patience())
        if self._spare is not None:
            moment = min(moment, self._spare.patience())
        return min(moment, *self._coming.values()) if self._coming else moment

    def _living(self) -> list[Live]:
        return [*self._open.values(), *([self._spare] if self._spare is not None else [])]

    def tend(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        if now >= self._refill_at:
            self._refill_at = _FOREVER
            if self._spare is None:
                self._make_spare()
        for live in self._living():
            if now >= live.patience():
                live.tend(now)
        for branch in [branch for branch, moment in self._coming.items() if now >= moment]:
            branch.on_gone(f"it did not come within {_BIRTH:.0f} s")
        self._going = [live for live in self._going if not live.house.gone()]

    def close(self) -> None:
        """End all of them."""
        for live in self._open.values():
            self._bury(live)
        if self._spare is not None:
            self._bury(self._spare)
        self._porter.close()
        self._await_end()
        for live in self._going:
            live.house.kill()
        self._await_end()

    def _await_end(self) -> None:
        deadline = time.monotonic() + _GRACE
        while self._going and time.monotonic() < deadline:
            # Branches first: the cell that one lives below stays until it is gone.
            self._going = [live for live in reversed(self._going) if not live.house.gone()]
            if self._going:
                time.sleep(0.001)


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
