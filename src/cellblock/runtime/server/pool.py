"""All cells of one zygote: starting, ready, running, and retired.

A cell is kept ready in advance, so that a block does not wait for one to start. A cell runs one
block after another. Cells that are not needed any more are retired.
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
from collections.abc import Callable, Sequence

from ..linux import process_tree
from ..messages import Failure, MountSpec
from ..spec import ServerSpec
from .cell import GRACE, Cell, CellError, Job, file_failure
from .cgroups import CellCgroups
from .event_loop import FOREVER
from .faults import describe, run_contained
from .interfaces import FrameSender
from .output import forward_output, send_tail
from .scheduler import CPU_COUNT, TIME_SLICE, Scheduler, has_idle_cpu
from .storage import WritableFolders, mounted_folders

_MAX_STARTING = 4  # cells being started at one time
# Seconds before spare cells are started, so that they do not slow down a short block.
_REFILL_DELAY = 0.005
# Seconds without a block until half of the ready cells are retired, or all that the CPUs have no
# use for. Starting one costs as much as several blocks, and callers come back: in that time, an
# agent has asked its model.
_TRIM_AFTER = 10.0
_PRETOUCH_AFTER = 0.015  # seconds without a block until waiting processes touch their memory
_REAP_INTERVAL = 0.005  # seconds between checks whether retired cells have ended
_RETRY_DELAY = 0.05  # seconds until a cell is started again after one could not be made
EDGE_TRIGGERED = select.EPOLLIN | select.EPOLLET


class Pool:
    """The cells that one zygote forks. `name` prefixes their names, so that pools do not clash.

    Blocks can write to `folders`, by default those of `spec`. `other_inits` returns the first
    processes of other cells below the zygote, or None while the process ID of one is not known yet.
    """

    def __init__(
        self,
        client: FrameSender,
        zygote: socket.socket,
        zygote_pid: int,
        spec: ServerSpec,
        cgroups: CellCgroups,
        name: str = "",
        scheduler: Scheduler | None = None,
        folders: WritableFolders | None = None,
        other_inits: Callable[[], set[int] | None] = set,
    ) -> None:
        self._client, self._zygote, self._zygote_pid, self._spec = client, zygote, zygote_pid, spec
        self._own_processes = spec.zygote.own_processes
        self._scripts = spec.zygote.scripts
        self.cgroups = cgroups
        self._folders = folders or WritableFolders(spec.writable)
        self._name, self._scheduler = name, scheduler or Scheduler()
        self._max_spares = self._wanted_spares = spec.spares
        # More active cells only share the CPUs, unless their blocks sleep.
        self._useful_cells = 2 * CPU_COUNT + 2
        self._waiting: deque[Job] = deque()
        self._ready: deque[Cell] = deque()
        self._starting: set[Cell] = set()
        self._cancelled = set[int]()  # the numbers of jobs whose own cells are starting
        self._running: dict[int, Cell] = {}
        self._retired: list[Cell] = []
        self._count = 0
        self._failures = 0
        self._last_end = 0.0
        self._refill_at = 0.0
        self._trim_at = self._pretouch_at = self._retry_at = self._kill_at = FOREVER
        self._may_have_orphans = False
        self._other_inits = other_inits

    # requests

    def submit(self, job: Job) -> None:
        """Run `job` as soon as there is a cell for it."""
        if self._running or not self._ready:
            self._wanted_spares = self._max_spares
        self._waiting.append(job)
        self._dispatch()
        self._refill_soon()

    def submit_with_mounts(
        self, job: Job, mounts: Sequence[MountSpec], descriptors: list[int]
    ) -> None:
        """Run `job` in a new cell, with `mounts`, whose `descriptors` the mount broker has sent."""
        dedicated_to = (job, mounts, descriptors)
        self._request_cell(Cell(self._next_name(), self._spec, self.cgroups, dedicated_to))

    def has(self, number: int) -> bool:
        """Return True if run `number` has not ended."""
        jobs = [*self._waiting, *(cell.job for cell in self._starting if cell.job is not None)]
        return number in self._running or any(job.number == number for job in jobs)

    def cancel(self, number: int) -> None:
        """Stop run `number` or remove it from the queue. Do nothing if it has ended."""
        for job in self._waiting:
            if job.number == number:
                self._waiting.remove(job)
                self._client.send(job.cancelled_ending().encode(number))
                return
        if number in self._running:
            self._running[number].stop_run("cancelled")
        elif any(cell.job is not None and cell.job.number == number for cell in self._starting):
            self._cancelled.add(number)

    def resume(self) -> None:
        """Start waiting blocks, since the client has read its output."""
        self._dispatch()

    # timers

    def next_deadline(self) -> float:
        """Return the `time.monotonic` at which `on_timer` must be called, or `FOREVER`."""
        if self._retired or self._may_have_orphans:
            return time.monotonic() + _REAP_INTERVAL
        deadline = min(self._refill_at, self._trim_at, self._pretouch_at, self._retry_at)
        if self._running:
            checks = [cell.run.next_check for cell in self._running.values() if cell.run]
            deadline = min([deadline, *checks])
        return deadline

    def on_timer(self) -> None:
        """Do the work that is due: start and retire cells, check limits, reap."""
        now = time.monotonic()
        if now >= self._refill_at:
            self._refill()
        if now >= self._retry_at:
            self._retry_at = FOREVER
            self._dispatch()
        if now >= self._trim_at:
            self._trim()
        if now >= self._pretouch_at:
            self._pretouch()
        for cell in list(self._running.values()):
            if cell.run and now >= cell.run.next_check:
                on_fault = functools.partial(self._on_cell_fault, cell)
                run_contained(functools.partial(cell.check_limits, now), on_fault)
        self._reap_retired()
        if self._may_have_orphans and all(cell.pid for cell in self._starting):
            self._kill_orphans()

    # starting cells

    def _register_output(self, cell: Cell) -> None:
        """Register the pipes of a cell before it has a block: registering takes time."""
        for reader in cell.pipes.readers if cell.pipes else ():
            handler = functools.partial(self._on_output, cell, reader)
            on_fault = functools.partial(self._on_cell_fault, cell)
            self._client.register(reader, handler, EDGE_TRIGGERED, on_fault)

    def _unregister_output(self, cell: Cell) -> None:
        for reader in cell.pipes.readers if cell.pipes else ():
            self._client.unregister(reader, closing=True)

    def _refill_soon(self) -> None:
        """Start missing cells now, and spare ones later: they would slow the block's start."""
        if self._waiting:
            self._refill()
        elif self._refill_at == FOREVER:
            self._refill_at = time.monotonic() + _REFILL_DELAY

    def _refill(self) -> None:
        now = time.monotonic()
        self._refill_at = FOREVER
        wanted = len(self._waiting) + self._wanted_spares
        while len(self._starting) + len(self._ready) < wanted:
            if len(self._starting) >= _MAX_STARTING:
                return
            if self._has_enough_cells(now):
                self._refill_at = now + TIME_SLICE
                return
            try:
                self._request_cell(Cell(self._next_name(), self._spec, self.cgroups))
            except (OSError, MemoryError) as error:
                self._on_start_failed(describe(error))
                if self._waiting:
                    self._refill_at = now + _RETRY_DELAY
                return

    def _next_name(self) -> str:
        self._count += 1
        return f"{self._name}cell-{self._count}"

    def _request_cell(self, cell: Cell) -> None:
        on_fault = functools.partial(self._on_cell_fault, cell)
        try:
            on_packet = functools.partial(self._on_packet, cell)
            self._client.register(cell.socket.fileno(), on_packet, on_fault=on_fault)
            cell.request_fork(self._zygote)
        except BaseException:
            self._retire(cell)
            raise
        self._starting.add(cell)
        self._scheduler.add(self)

    def _has_enough_cells(self, now: float) -> bool:
        """Return True if blocks end one after another, and more cells would only share the CPUs."""
        if not self._waiting:
            return False
        if self._ready:  # the blocks wait because those of other pools go first
            return True
        if not self.active_cells() or not self._scheduler.has_enough_cells(self._useful_cells):
            return False
        time_slice = self._scheduler.time_slice(self._useful_cells)
        return now < max(self._last_end, self._waiting[0].arrived) + time_slice

    def active_cells(self) -> int:
        """See `ScheduledPool`."""
        return len(self._running) + len(self._starting)

    def started_since(self, since: float) -> int:
        """See `ScheduledPool`."""
        return len(self._starting) + sum(
            1 for cell in self._running.values() if cell.run and cell.run.started > since
        )

    def _trim(self) -> None:
        """Retire half of the ready cells, or all that the CPUs have no use for; keep one."""
        self._trim_at = FOREVER
        ready = len(self._ready)
        if self._running or ready <= 1:
            return
        for _ in range(min(ready - 1, max((ready + 1) // 2, ready - self._useful_cells))):
            self._retire(self._ready.popleft())
        self._wanted_spares = min(self._wanted_spares, len(self._ready))
        self._trim_at = time.monotonic() + _TRIM_AFTER

    def _schedule_idle_work(self) -> None:
        """Set the timers of the work that waits until no block runs."""
        if self._running:
            return
        if not self._starting:
            self._scheduler.remove(self)
        now = time.monotonic()
        if self._trim_at == FOREVER:
            self._trim_at = now + _TRIM_AFTER
        if self._scripts and self._pretouch_at == FOREVER:
            self._pretouch_at = now + _PRETOUCH_AFTER

    def _pretouch(self) -> None:
        self._pretouch_at = FOREVER
        if self._scheduler.is_idle() and has_idle_cpu():
            for cell in self._ready:
                cell.pretouch()

    def _on_packet(self, cell: Cell) -> None:
        try:
            ready = cell.read_packet()
        except CellError as error:
            self._on_cell_failed(cell, str(error))
            return
        if cell.run_ended:
            self._finish(cell)
        elif ready:
            self._register_output(cell)
            self._failures = 0
            self._starting.discard(cell)
            if cell.job is not None:
                self._start_own(cell, cell.job)
                return
            self._ready.append(cell)
            self._dispatch()
            self._refill_soon()
            self._schedule_idle_work()

    def _on_cell_failed(self, cell: Cell, why: str) -> None:
        """Retire a cell that did not start. After three failures in a row, a block fails too."""
        self._starting.discard(cell)
        with contextlib.suppress(ValueError):
            self._ready.remove(cell)
        cell.kill()
        self._retire(cell)
        if cell.job is not None:
            self._cancelled.discard(cell.job.number)
            self._client.send(Failure(why).encode(cell.job.number))
            return
        self._on_start_failed(why)
        if self._failures < 3 or self._waiting:
            self._refill_soon()
        self._schedule_idle_work()

    def _on_start_failed(self, why: str) -> None:
        self._failures += 1
        if self._waiting and self._failures >= 3:
            job = self._waiting.popleft()
            self._client.send(Failure(why).encode(job.number))

    def _on_cell_fault(self, cell: Cell, error: Exception) -> None:
        """End a cell, and the block in it, after a fault of the server."""
        if cell in self._retired:
            return
        if cell.run is None:
            self._on_cell_failed(cell, describe(error))
            return
        number = cell.run.number
        self._running.pop(number, None)
        self._client.send(Failure(describe(error)).encode(number))
        self._may_have_orphans = not self._own_processes
        cell.kill()
        self._retire(cell)
        self._dispatch()
        self._refill_soon()
        self._schedule_idle_work()

    # running blocks

    def _dispatch(self) -> None:
        while self._waiting and self._ready and not self._client.is_full:
            if self._scheduler.has_used_share(self, self._useful_cells):
                self._retry_at = time.monotonic() + TIME_SLICE
                return
            # The cell that became ready last: most of its memory is in the CPU caches.
            self._start(self._ready.pop(), self._waiting.popleft())

    def _start_own(self, cell: Cell, job: Job) -> None:
        """Start the job that `cell` was made for, unless it was cancelled meanwhile."""
        if job.number not in self._cancelled:
            self._start(cell, job)
            return
        self._cancelled.remove(job.number)
        self._client.send(job.cancelled_ending().encode(job.number))
        self._retire(cell)
        self._schedule_idle_work()

    def _start(self, cell: Cell, job: Job) -> None:
        try:
            folders = mounted_folders(cell.mounts) if cell.mounts else self._folders
            cell.start_run(job, folders)
        except (OSError, MemoryError) as error:
            self._client.send(file_failure(error).encode(job.number))
            if cell.job is None:
                self._ready.append(cell)
            else:
                self._retire(cell)
            return
        self._running[job.number] = cell
        self._scheduler.add(self)
        self._trim_at = self._pretouch_at = FOREVER

    def _on_output(self, cell: Cell, reader: int) -> None:
        if self._client.is_full:
            self._client.pause_reading(reader, EDGE_TRIGGERED)
            return
        run, pipes = cell.run, cell.pipes
        if run is None or pipes is None:
            return  # a main process without a block has failed, which the first process reports
        for stream, data in pipes.read(reader):
            forward_output(self._client, run, pipes.limit, stream, data)
        if pipes.readers[reader].has_more:
            self._client.rearm(reader, EDGE_TRIGGERED)

    def _finish(self, cell: Cell) -> None:
        """Send the rest of the output and the ending of a block whose processes are all gone."""
        run, pipes = cell.run, cell.pipes
        assert run is not None
        assert pipes is not None
        del self._running[run.number]
        self._last_end = time.monotonic()
        self._unregister_output(cell)
        for stream, data in pipes.drain():
            forward_output(self._client, run, pipes.limit, stream, data)
        send_tail(self._client, run, pipes.limit)
        self._client.send(cell.ending().encode(run.number))
        self._client.flush()
        self._recycle(cell)

    def _recycle(self, cell: Cell) -> None:
        """Prepare the cell for the next block, or retire it."""
        if cell.init_lost and not self._own_processes:
            self._may_have_orphans = True
        try:
            cell.prepare_next_run()
        except (CellError, OSError, MemoryError):
            cell.is_used_up = True
        if cell.is_used_up:
            self._retire(cell)
        else:
            self._starting.add(cell)
        self._dispatch()
        self._refill_soon()
        self._schedule_idle_work()

    def _reap_retired(self) -> None:
        self._retired = [
            cell for cell in self._retired if not (cell.has_ended() and cell.remove_cgroups())
        ]

    def _retire(self, cell: Cell) -> None:
        self._unregister_output(cell)
        self._client.unregister(cell.socket.fileno())
        cell.close()
        self._retired.append(cell)

    # the end

    def kill_orphans_soon(self) -> None:
        """Kill orphans at the next timer. Only needed without process namespaces."""
        self._may_have_orphans = not self._own_processes

    def _kill_orphans(self) -> None:
        """Kill processes that outlived their cell's first process."""
        others = self._other_inits()
        if others is None:
            return
        self._may_have_orphans = False
        cells = (*self._running.values(), *self._ready, *self._starting, *self._retired)
        known = others | {cell.pid for cell in cells}
        for pid in process_tree.children(self._zygote_pid):
            if pid not in known:
                process_tree.kill_descendants(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def start_shutdown(self) -> None:
        """Close every cell and the zygote. They are gone when `is_shut_down` returns True."""
        for cell in self._running.values():
            cell.stop_run(None)
        for cell in (*self._running.values(), *self._ready, *self._starting):
            self._retire(cell)
        self._waiting.clear()
        self._ready.clear()
        self._running.clear()
        self._starting.clear()
        self._refill_at = self._trim_at = self._pretouch_at = self._retry_at = FOREVER
        self._client.unregister(self._zygote.fileno())
        self._zygote.close()
        if self._spec.zygote.namespaces and self._zygote_pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._zygote_pid, signal.SIGKILL)
        self._scheduler.remove(self)
        self._kill_at = time.monotonic() + GRACE

    def is_shut_down(self) -> bool:
        """Return True if all retired cells are gone. Kill those that do not end."""
        self._reap_retired()
        if self._retired and time.monotonic() >= self._kill_at:
            self._kill_at += GRACE
            for cell in self._retired:
                cell.kill()
        return not self._retired

    def close(self) -> None:
        """Shut down, and wait up to twice the grace period until all cells are gone."""
        self.start_shutdown()
        deadline = time.monotonic() + 2 * GRACE
        while not self.is_shut_down() and time.monotonic() < deadline:
            time.sleep(0.001)
