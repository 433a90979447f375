"""A live session as the server sees it: the process that runs its blocks, and what there is to bring that back.

A session does one thing at a time: a block or a question. Whatever a block does to its process, the session goes on: from
that process, when an interrupt ended the block; else from its last keeper; else from a fresh one.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

from ... import protocol
from ...linux import process_tree
from ..cell import Job, Run
from ..cgroups import Groups
from ..interfaces import Owner
from .channel import Channel
from .checkpoints import Copies
from .first_process import House
from .output import Valve
from .request import Task, answer_in

_LOOK = 0.05  # seconds between two looks at what a running block uses
_INTERRUPTED = 1.0  # seconds that code has to end after an interrupt, before its process is killed
_AGAIN = 0.002  # seconds between two looks whether what was killed is gone
_TOLD = 2.0  # seconds to wait for the guard's word on how a process ended
_START = (
    30.0  # seconds that a process of ours may take to come up; far more than a loaded machine needs
)
_TRIES = 3
_FOREVER = float("inf")


class Live:
    """One session. `on_ready`: its process waits for work. `on_gone`: its cell has failed as a whole, with the reason."""

    def __init__(self, loop: Owner, name: str, spec: dict[str, Any], groups: Groups) -> None:
        self._loop, self._limits = loop, spec["limits"]
        self.on_ready: Callable[[], None] = lambda: None
        self.on_gone: Callable[[str], None] = lambda _why: None
        self.on_answer: Callable[[dict[str, Any]], None] | None = (
            None  # instead of telling what became of a fork
        )
        self.valve = Valve(loop, self._limits.get("output_bytes"))
        self.house = House(loop, name, groups, self._start_main, self._conclude, self._fail)
        self.main: Channel | None = None
        self._main_ready = False
        self._main_inside = 0  # its process id in the cell, as it says
        self._start_by = _FOREVER
        self._failures = 0
        self.blocks = 0  # and values set, that its present process has seen
        self.entered = False  # its folders
        self.copies = Copies(loop, self._conclude)
        self.owed: dict[str, Any] | None = (
            None  # what asks for the first copy of a branch, which untouched needs none
        )
        self.birth: int | None = (
            None  # blocks that a branch began with, where its guard can always begin it again
        )
        self._fate: tuple[str, int] = (
            "kept",
            0,
        )  # of the session since it was last told of, and how many blocks are lost
        self.task: Task | None = None
        self._again_at = self._look_at = _FOREVER
        self.closing = False
        self._paused = set[int]()

    # its process

    def new_main(self) -> Channel:
        """Give the channel of a process that is about to be made."""
        self._main_ready = False
        self._start_by = time.monotonic() + _START
        self.main = Channel(self._loop, self._on_frame, self._on_main_end)
        return self.main

    @property
    def main_ready(self) -> bool:
        """Whether its process waits for work, or is at it."""
        return self._main_ready

    def _start_main(self) -> None:
        channel = self.new_main()
        self.house.order(
            {"do": "start", "enter": self.entered}, [channel.hand_over(), *self.valve.writers]
        )
        channel.sent()

    def _on_frame(self, frame: protocol.Frame) -> None:
        task = self.task
        if frame.kind == protocol.ANSWER and frame.run == 0:
            answer = answer_in(frame)
            if self._main_ready:
                self._adopt(answer)
                self.copies.end_auto(answer)
            else:
                self._on_main_ready(answer)
        elif task is None or frame.run != task.run.number or task.answer is not None:
            return
        elif frame.kind == protocol.ANSWER:
            task.answer = answer_in(frame)
            if "keepers" in task.answer:
                self._adopt(task.answer)
            self._conclude()
        elif task.lets_pass(frame, self._limits.get("memory_bytes")):
            if frame.kind == protocol.INPUT:
                self.valve.settle(task.run)  # what leads up to the question is read before it
            self._loop.send(
                protocol.encode(frame.kind, frame.run, frame.payload),
                can_wait=frame.kind == protocol.DISPLAY,
            )
            if frame.kind != protocol.DISPLAY:
                self._loop.flush()

    def _on_main_ready(self, hello: dict[str, Any]) -> None:
        assert self.main is not None
        self._main_ready, self._start_by, self._failures = True, _FOREVER, 0
        self.house.main = self.main.pid
        self._main_inside = hello["pid"]
        self._adopt(hello)
        if not self.house.spaces:  # a branch that nobody knows of yet is told of first
            self.admit()
        self.on_ready()
        if self.task is not None and not self.task.brought_back and not self.task.dead_since:
            self._send_order(self.task)
        self._conclude()

    def admit(self) -> None:
        """Have what its process uses counted, and limited, as its own."""
        if self.main is not None:
            self.house.admit(self.main.pid)

    def _adopt(self, said: dict[str, Any]) -> None:
        """Find the copies that its process says it has made."""
        for inside in said.get("keepers", ()):
            if self.main is not None and not self.copies.settled:
                self.copies.adopt(self.house.child(self.main.pid, inside, self.copies.pids()))

    def _on_main_end(self) -> None:
        was_ready, self._main_ready = self._main_ready, False
        self.copies.lose_unborn()
        self.main, self._start_by = None, _FOREVER
        self.house.main = 0  # its number may soon be another's
        if self.closing:
            return
        if self.task is not None and (was_ready or self.task.is_halt):
            self.task.dead_since = time.monotonic()
            self._conclude()
        elif not was_ready:
            self._failures += 1
            if self._failures >= _TRIES:
                self._fail("the session's process does not start")
                return
            self._begin_afresh()
        else:
            self._bring_back()

    # blocks and questions

    def do(
        self, job: Job, descriptors: list[int] | None = None, payload: bytes | None = None
    ) -> Task | None:
        """Do what `job` asks for: its request has ``op``, and what that takes. `None`: it has been refused.

        `payload` is the request as it came, which spares making it anew.
        """
        if self.task is not None or self.closing:
            self._loop.send(
                protocol.encode_json(
                    protocol.FAILED, job.run, {"error": "the session is busy, or closed"}
                )
            )
            return None
        try:
            run = Run(job, self._limits)
        except OSError as error:
            self._loop.send(job.unwritten(error))
            return None
        task = self.task = Task(run, job.request, descriptors or [], payload)
        if task.is_block:
            self.valve.open(run)
            self._look_at = time.monotonic() + _LOOK
        if task.is_halt:
            self._halt(task)
        elif self._main_ready:
            self._send_order(task)
        return task

    def _halt(self, task: Task) -> None:
        """Kill its process, and see that nothing is left of it, before it is made anew from a mark."""
        self.copies.drop_autos()
        if self.main is None:
            task.dead_since = time.monotonic()
            self._conclude()
        else:
            self.main.kill()

    def _send_order(self, task: Task) -> None:
        assert self.main is not None
        if self.owed is not None:
            owed, self.owed = self.owed, None
            self.keep(owed)
        keeper = self.copies.begin_mark(self.blocks) if task.order["op"] == "keep" else None
        if keeper is not None:
            task.descriptors = [keeper.channel.hand_over()]
        self.main.send(
            protocol.encode(protocol.ASK, task.run.number, task.payload), task.descriptors
        )
        if keeper is not None:
            keeper.channel.sent()

    def data(self, frame: protocol.Frame) -> None:
        """Pass on a piece of a value, or a line of input."""
        if self.main is not None:
            self.main.send(protocol.encode(protocol.DATA, frame.run, frame.payload))

    def end(self, why: str) -> None:
        """End what it is busy with."""
        task = self.task
        if task is None or task.run.why is not None or task.answer is not None:
            return
        # What takes too much memory would keep it if it were only interrupted, and have every block after it ended too.
        patience = 0.0 if why == "memory_bytes" else _INTERRUPTED
        task.run.why, task.kill_at = why, time.monotonic() + patience
        if self.main is not None:
            self.main.signal(signal.SIGCONT)
            self.main.signal(signal.SIGINT)

    def patience(self) -> float:
        """Give the moment at which `tend` must be called."""
        moment = min(self._again_at, self._look_at, self._start_by)
        return (
            moment if self.task is None else min(moment, self.task.kill_at, self.task.run.deadline)
        )

    def tend(self, now: float) -> None:
        """Do what is due."""
        task = self.task
        if task is not None and task.answer is None:
            if now >= task.kill_at:
                task.kill_at = _FOREVER
                if self.main is not None:
                    self.main.kill()
            elif now >= task.run.deadline:
                task.run.deadline = _FOREVER
                self.end("wall_seconds")
            elif now >= self._look_at:
                self._look_at = now + _LOOK
                if limit := self.house.exceeded(self._limits):
                    self.end(limit)
        if now >= self._start_by and self.main is not None:
            self._start_by = _FOREVER
            self.main.give_up()
        if now >= self._again_at:
            self._conclude()

    # the end of a block

    def _conclude(self) -> None:
        """When what it was busy with is over: see that nothing is left of it and the session can go on, then tell."""
        task, now = self.task, time.monotonic()
        self._again_at = _FOREVER
        if task is None or (task.answer is None and not task.dead_since):
            return
        if not task.brought_back and not self._is_settled(task, now):
            self._again_at = now + _AGAIN
            return
        if task.is_halt:
            task.answer = {}
            self.valve.forget()
            self._tell(task)
            return
        if self.main is None and not task.brought_back:
            task.brought_back = True
            self._bring_back()
        if self._main_ready:
            self._tell(task)

    def _is_settled(self, task: Task, now: float) -> bool:
        """Tell whether all is known of the end, and nothing left of the block."""
        if task.dead_since and task.died is None:
            task.died = self.house.deaths.pop(self._main_inside, None)
            if task.died is None and now < task.dead_since + _TOLD:
                return False
            task.died = task.died or (None, 0.0)
        self.copies.lose_unborn()  # a process answers in turn: what it has not told of by now does not come
        ends_all = task.dead_since or (task.is_block and not task.order.get("keep_processes"))
        return not (ends_all and self._sweep())

    def _sweep(self) -> bool:
        """Kill what is left of a block; tell whether there was anything."""
        if not (left := self._strays()):
            return False
        for pid in left:
            process_tree.kill_below(pid)
            process_tree.send(pid, signal.SIGKILL)
        return True

    def _strays(self) -> list[int]:
        return self.house.strays(self.main.pid if self.main is not None else 0, self.copies.pids())

    def pause(self, *, on: bool) -> None:
        """Stop all code of the session, or let it go on: nothing of it may meet a guard that is not shut in yet."""
        number = signal.SIGSTOP if on else signal.SIGCONT
        if self.main is not None:
            self.main.signal(number)
        found = {
            pid for stray in self._strays() for pid in (stray, *process_tree.descendants(stray))
        }
        # Among those stopped may be one that just became a branch's: it is no stray any more, and must go on all the same.
        found, self._paused = found | self._paused, found if on else set[int]()
        for pid in found:
            process_tree.send(pid, number)

    def _bring_back(self) -> None:
        """Have a new process made, from the last keeper where there is one."""
        if self.copies.auto is not None:
            before, self.blocks = self.blocks, self.copies.resume_auto(self.new_main())
            lost = max(before - self.blocks, 0)
            self._fate = ("new" if self._fate[0] == "new" else "restored"), self._fate[1] + lost
        else:
            self._begin_afresh()

    def _begin_afresh(self) -> None:
        """Have a process made that knows nothing, or what its guard knows; as good as new where nothing had been done yet."""
        begins_with = self.birth or 0
        lost = self._fate[1] + self.blocks - begins_with
        self._fate = ("new" if lost and self.birth is None else "restored"), lost
        self.blocks = begins_with
        self._start_main()

    def resume(self, mark: str) -> None:
        """Have the session go on from the copy that `mark` stands for."""
        self._fate = "kept", 0
        self.blocks = self.copies.resume(mark, self.new_main())

    @property
    def is_lost(self) -> bool:
        """Whether it could not go on since it was last told of, and what it had was lost."""
        return self._fate[0] != "kept"

    def _tell(self, task: Task) -> None:
        self.task, self._look_at = None, _FOREVER
        number = task.run.number
        if task.is_block:
            self.valve.close(task.run)
            self._loop.answer(protocol.encode_json(protocol.ENDED, number, self._ending(task)), 0)
            self._fate = "kept", 0
        elif self.on_answer is not None:
            then, self.on_answer = self.on_answer, None
            then(self._answer(task))
            self._loop.flush()
        else:
            self._loop.answer(protocol.encode_json(protocol.ANSWER, number, self._answer(task)), 0)
        task.run.close()
        if task.is_block or task.order["op"] == "set":
            self._after_change(task)
        self.entered = self.entered or task.order["op"] == "enter"

    def _after_change(self, task: Task) -> None:
        self.blocks += not task.brought_back
        if not task.brought_back or self.copies.auto is None:
            self.keep(task.order)
        self.house.begin(alone=not task.order.get("keep_processes"))

    def _answer(self, task: Task) -> dict[str, Any]:
        ended = {"error": "The session's process ended."}
        answer = {**(ended if task.answer is None else task.answer), "why": task.run.why}
        if task.order["op"] == "keep":
            self.copies.end_mark(task.order["mark"], answer)
        return answer

    def _ending(self, task: Task) -> dict[str, Any]:
        status, cpu = task.died or (None, 0.0)
        if task.answer is not None:
            status, cpu = (
                (task.answer.get("exit", 1) & 0xFF) << 8,
                float(task.answer.get("cpu", 0.0)),
            )
        cpu = self.house.cpu_seconds() or cpu
        why = task.run.why or self.house.was_over(self._limits, cpu, status)
        return {
            "status": status,
            "why": why,
            "wall": time.monotonic() - task.run.started,
            "cpu": cpu,
            "peak": self.house.peak_bytes(),
            "queued": task.run.queued,
            "session": self._fate[0],
            "lost": self._fate[1],
            "error": task.answer.get("error")
            if task.answer is not None and not task.answer.get("interrupted")
            else None,
            "obstacles": self.copies.obstacles,
        }

    def keep(self, order: dict[str, Any]) -> None:
        """Where `order` wants it, have a copy made of what there is now, for the case that the next block ends it."""
        if self.main is not None and order.get("checkpoint"):
            self.copies.begin_auto(self.main, self.blocks)

    # the end

    def _fail(self, why: str) -> None:
        """The cell is gone as a whole."""
        if self.closing:
            return
        if self.task is not None:
            self._loop.send(
                protocol.encode_json(protocol.FAILED, self.task.run.number, {"error": why})
            )
            self.task.run.close()
        self.close()
        self.on_gone(why)

    def close(self) -> None:
        """End it. Its cell stays as long as branches live below it."""
        self.task = None
        if not self.closing:
            self.closing = True
            self.copies.close()
            if self.main is not None:
                self.main.kill()
                self.main.close()
            self.main, self._main_ready = None, False
            self._sweep()
            self.valve.shut()
        self.house.close()
