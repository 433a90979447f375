"""All cells of a server, from wish to grave: being made, ready, running, going.

One is always ready in advance, so that who asks waits for his code alone. A cell serves one block after the other; when
many were needed and are no more, they go.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from .. import protocol
from ..linux import process_tree
from .cell import Cell, CellFailed, Job
from .cgroups import Groups
from .event_loop import FOREVER
from .interfaces import Owner
from .output import pass_on, send_rest
from .scheduler import PROCESSORS, STUCK, Crowd, processors_are_free

_SPARES = (
    1  # cells ready in advance, while there are blocks: more are colder, and to make them is work
)
_WARMING = 4  # cells being made at one time
_FIRST_LOOK = (
    0.05  # seconds until a running cell is measured for the first time; most are over by then
)
_NEXT_LOOK = 0.05
_GRACE = 2.0  # seconds that a cell's first process has to end a block before it is killed itself
_MOMENT = (
    0.005  # seconds that most short blocks need; until then they have the machine to themselves
)
# Seconds without any block, after which cells go: those that the processors are not good for, or half. To make one is the
# work of several blocks, and callers come again: an agent has asked its model by then.
_IDLE = 10.0
_QUIET = 0.015  # seconds without any block, after which those that wait may rehearse
_SOON = 0.005  # seconds until the next look whether what ends has ended
EDGES = select.EPOLLIN | select.EPOLLET


class Pool:
    """The cells that one zygote forks. `name` begins their names, where there are other pools, in one `crowd`."""

    def __init__(
        self,
        loop: Owner,
        zygote: socket.socket,
        zygote_pid: int,
        spec: dict[str, Any],
        groups: Groups,
        name: str = "",
        crowd: Crowd | None = None,
    ) -> None:
        self._loop, self._zygote, self._zygote_pid, self._spec = loop, zygote, zygote_pid, spec
        self._own_processes, self._scripts = (
            bool(spec["zygote"]["own_processes"]),
            bool(spec["zygote"]["scripts"]),
        )
        self.groups = groups
        self._name, self._crowd = name, crowd or Crowd()
        self._spares = self._kept = int(
            spec.get("spares", _SPARES)
        )  # ready in advance where many call, and now
        self._useful = (
            2 * PROCESSORS + 2
        )  # more cells would share the processors, unless their blocks sleep
        self._waiting: deque[Job] = deque()
        self._ready: deque[Cell] = deque()
        self._warming: set[Cell] = set()
        self._running: dict[int, Cell] = {}
        self._remains: list[Cell] = []
        self._count = 0
        self._failures = 0
        self._last_end = 0.0
        self._refill_at = 0.0
        self._trim_at = self._rehearse_at = self._retry_at = self._kill_at = FOREVER
        self._strays = False
        # The first processes of cells that are not the pool's; `None`: one is on its way, and not known yet.
        self.others: Callable[[], set[int] | None] = set

    # asked from outside

    def add(self, job: Job) -> None:
        """Give `job` a cell as soon as there is one."""
        if self._running or not self._ready:
            self._kept = self._spares
        self._waiting.append(job)
        self._dispatch()
        self._refill_soon()

    def add_in(self, job: Job, targets: list[str], mounts: list[int]) -> None:
        """Give `job` a cell of its own, with `mounts` on `targets` in it."""
        self._ask_for(Cell(self._next_name(), self._spec, self.groups, own=(job, targets, mounts)))

    def cancel(self, number: int) -> None:
        """End run `number`, or take it out of the queue; does nothing when it is over."""
        for job in self._waiting:
            if job.run == number:
                self._waiting.remove(job)
                self._loop.send(protocol.encode_json(protocol.ENDED, number, job.never_started()))
                return
        if number in self._running:
            self._stop(self._running[number], "cancelled")

    def moment(self) -> float:
        """Give when `tend` must be called; of `time.monotonic`."""
        if self._remains or self._strays:
            return time.monotonic() + _SOON
        moment = min(self._refill_at, self._trim_at, self._rehearse_at, self._retry_at)
        if self._running:
            moment = min(
                [moment, *[cell.run.next_look for cell in self._running.values() if cell.run]]
            )
        return moment

    def go_on(self) -> None:
        """What was sent has been taken: blocks that waited may begin."""
        self._dispatch()

    def tend(self) -> None:
        """Do what is due: new cells, limits, graves."""
        now = time.monotonic()
        if now >= self._refill_at:
            self._refill()
        if now >= self._retry_at:
            self._retry_at = FOREVER
            self._dispatch()
        if now >= self._trim_at:
            self._trim()
        if now >= self._rehearse_at:
            self._rehearse()
        for cell in list(self._running.values()):
            if cell.run and now >= cell.run.next_look:
                self._look(cell, now)
        self._bury_dead()
        if self._strays and all(cell.pid for cell in self._warming):
            self._sweep()

    # made and ready

    def _listen(self, cell: Cell) -> None:
        """Hear what a cell's block will say: before there is one, since somebody waits then."""
        for reader in cell.pump.pipes if cell.pump else ():
            self._loop.watch(reader, functools.partial(self._on_output, cell, reader), EDGES)

    def _hear_no_more(self, cell: Cell) -> None:
        for reader in cell.pump.pipes if cell.pump else ():
            self._loop.forget(reader, is_to_be_closed=True)

    def _refill_soon(self) -> None:
        """Make what is missing at once, and the spare cells a moment later: they would compete with the block's start."""
        if self._waiting:
            self._refill()
        elif self._refill_at == FOREVER:
            self._refill_at = time.monotonic() + _MOMENT

    def _refill(self) -> None:
        now = time.monotonic()
        self._refill_at = FOREVER
        wanted = len(self._waiting) + self._kept
        while len(self._warming) + len(self._ready) < wanted and len(self._warming) < _WARMING:
            if self._is_plenty(now):
                self._refill_at = now + STUCK
                return
            self._ask_for(Cell(self._next_name(), self._spec, self.groups))

    def _next_name(self) -> str:
        self._count += 1
        return f"{self._name}cell-{self._count}"

    def _ask_for(self, cell: Cell) -> None:
        cell.request(self._zygote)
        self._warming.add(cell)
        self._crowd.join(self)
        self._loop.watch(cell.link.fileno(), functools.partial(self._on_cell, cell))

    def _is_plenty(self, now: float) -> bool:
        """Tell whether more cells would only share the processors among more: blocks end one after the other already."""
        if not self._waiting:
            return False
        if self._ready:  # and blocks wait all the same: others' are to go first
            return True
        if not self.at_work() or not self._crowd.is_enough(self._useful):
            return False
        return now < max(self._last_end, self._waiting[0].arrived) + self._crowd.turn(self._useful)

    def at_work(self) -> int:
        """See `crowd.Member`."""
        return len(self._running) + len(self._warming)

    def young(self, since: float) -> int:
        """See `crowd.Member`."""
        return len(self._warming) + sum(
            1 for cell in self._running.values() if cell.run and cell.run.started > since
        )

    def _trim(self) -> None:
        """Without blocks, let go of all cells that are too many, or of half; the last stays, for who comes again alone."""
        self._trim_at = FOREVER
        ready = len(self._ready)
        if self._running or ready <= 1:
            return
        for _ in range(min(ready - 1, max((ready + 1) // 2, ready - self._useful))):
            self._bury(self._ready.popleft())
        self._kept = min(self._kept, len(self._ready))
        self._trim_at = time.monotonic() + _IDLE

    def _rest_soon(self) -> None:
        """A moment after the last block there is time for other things."""
        if self._running:
            return
        if not self._warming:
            self._crowd.leave(self)
        now = time.monotonic()
        if self._trim_at == FOREVER:
            self._trim_at = now + _IDLE
        if self._scripts and self._rehearse_at == FOREVER:
            self._rehearse_at = now + _QUIET

    def _rehearse(self) -> None:
        self._rehearse_at = FOREVER
        if self._crowd.is_idle() and processors_are_free():
            for cell in self._ready:
                cell.rehearse()

    def _on_cell(self, cell: Cell) -> None:
        try:
            ready = cell.read()
        except CellFailed as error:
            self._cell_failed(cell, str(error))
            return
        if cell.ended:
            self._finish(cell)
        elif ready:
            self._failures = 0
            self._warming.discard(cell)
            self._listen(cell)
            if cell.job is not None:
                self._start(cell, cell.job)
                return
            self._ready.append(cell)
            self._dispatch()
            self._refill_soon()
            self._rest_soon()

    def _cell_failed(self, cell: Cell, why: str) -> None:
        """A cell could not be made. Whoever waits is told; one that fails again and again is not tried for ever."""
        self._warming.discard(cell)
        with contextlib.suppress(ValueError):
            self._ready.remove(cell)
        cell.kill()
        self._bury(cell)
        if cell.job is not None:
            self._loop.send(protocol.encode_json(protocol.FAILED, cell.job.run, {"error": why}))
            return
        self._failures += 1
        if self._waiting and self._failures >= 3:
            job = self._waiting.popleft()
            self._loop.send(protocol.encode_json(protocol.FAILED, job.run, {"error": why}))
        if self._failures < 3 or self._waiting:
            self._refill_soon()
        self._rest_soon()

    # running

    def _dispatch(self) -> None:
        while self._waiting and self._ready and not self._loop.is_full:
            if self._crowd.has_its_share(self, self._useful):
                self._retry_at = time.monotonic() + STUCK
                return
            self._start(self._ready.pop(), self._waiting.popleft())  # the one whose memory is warm

    def _start(self, cell: Cell, job: Job) -> None:
        try:
            cell.start(job)
        except OSError as error:
            self._loop.send(job.unwritten(error))
            self._ready.append(cell) if cell.job is None else self._bury(cell)
            return
        assert cell.run is not None
        cell.run.next_look = min(cell.run.started + _FIRST_LOOK, cell.run.deadline)
        self._running[job.run] = cell
        self._crowd.join(self)
        self._trim_at = self._rehearse_at = FOREVER

    def _on_output(self, cell: Cell, reader: int) -> None:
        if self._loop.is_full:
            self._loop.hold(reader, EDGES)
            return
        run, pump = cell.run, cell.pump
        if run is None or pump is None:
            return  # no block's words: its main process fails, of which its first one tells
        for stream, data in pump.readable(reader):
            pass_on(self._loop, run, pump.keeper, stream, data)
        if pump.pipes[reader].more:
            self._loop.again(reader, EDGES)

    def _look(self, cell: Cell, now: float) -> None:
        run = cell.run
        assert run is not None
        run.next_look = min(now + _NEXT_LOOK, max(run.deadline, now + 0.001))
        if run.stopping:
            if now >= run.stopping + _GRACE:
                cell.kill()
                run.next_look = now + _GRACE
        elif now >= run.deadline:
            self._stop(cell, "wall_seconds")
        elif limit := cell.exceeded():
            self._stop(cell, limit)

    def _stop(self, cell: Cell, why: str) -> None:
        cell.stop(why)
        if cell.run:
            cell.run.next_look = time.monotonic() + _GRACE

    def _finish(self, cell: Cell) -> None:
        """Nothing of the block lives any more: send what is left of its output, and how it ended."""
        run, pump = cell.run, cell.pump
        assert run is not None
        assert pump is not None
        del self._running[run.number]
        self._last_end = time.monotonic()
        self._hear_no_more(cell)
        for stream, data in pump.rest():
            pass_on(self._loop, run, pump.keeper, stream, data)
        send_rest(self._loop, run, pump.keeper)
        self._loop.answer(
            protocol.encode_json(protocol.ENDED, run.number, cell.ending()), len(self._waiting)
        )
        self._clear(cell)

    def _clear(self, cell: Cell) -> None:
        """Make the cell ready for the next block, or let it go."""
        self._strays = self._strays or (cell.lost and not self._own_processes)
        try:
            cell.clear()
        except CellFailed:
            cell.used_up = True
        if cell.used_up:
            self._bury(cell)
        else:
            self._warming.add(cell)
        self._dispatch()
        self._refill_soon()
        self._rest_soon()

    def _bury_dead(self) -> None:
        self._remains = [cell for cell in self._remains if not (cell.gone() and cell.remove())]

    def _bury(self, cell: Cell) -> None:
        self._hear_no_more(cell)
        self._loop.forget(cell.link.fileno())
        cell.close()
        self._remains.append(cell)

    # the end

    def end_strays(self) -> None:
        """Without process namespaces: have what lost its cell's first process ended, soon."""
        self._strays = not self._own_processes

    def _sweep(self) -> None:
        """Without process namespaces: end what lost its cell's first process, and so became the zygote's child."""
        others = self.others()
        if others is None:
            return
        self._strays = False
        known = others | {
            cell.pid
            for cell in (*self._running.values(), *self._ready, *self._warming, *self._remains)
        }
        for pid in process_tree.children(self._zygote_pid):
            if pid not in known:
                process_tree.kill_below(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        """Let go of every cell and of the zygote; `is_over` tells when they are gone."""
        for cell in self._running.values():
            cell.stop(None)
        for cell in (*self._running.values(), *self._ready, *self._warming):
            self._bury(cell)
        self._waiting.clear()
        self._ready.clear()
        self._running.clear()
        self._warming.clear()
        self._refill_at = self._trim_at = self._rehearse_at = self._retry_at = FOREVER
        self._loop.forget(self._zygote.fileno())
        self._zygote.close()
        if self._spec["zygote"]["namespaces"] and self._zygote_pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._zygote_pid, signal.SIGKILL)
        self._crowd.leave(self)
        self._kill_at = time.monotonic() + _GRACE

    def is_over(self) -> bool:
        """Tell whether all that `end` let go of is gone; what does not go by itself is killed."""
        self._bury_dead()
        if self._remains and time.monotonic() >= self._kill_at:
            self._kill_at += _GRACE
            for cell in self._remains:
                cell.kill()
        return not self._remains

    def close(self) -> None:
        """End all of it, and wait a while for that."""
        self.end()
        deadline = time.monotonic() + 2 * _GRACE
        while not self.is_over() and time.monotonic() < deadline:
            time.sleep(0.001)
