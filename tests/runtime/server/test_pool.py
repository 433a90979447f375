"""The pool and the scheduler: how many cells are started, and when."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable, Iterator

import pytest

import cellblock.runtime.server.pool
from cellblock.runtime import handshake
from cellblock.runtime.messages import RunRequest
from cellblock.runtime.server.cell import Cell, Job
from cellblock.runtime.server.cgroups import CellCgroups
from cellblock.runtime.server.pool import Pool
from cellblock.runtime.server.scheduler import ScheduledPool, Scheduler
from cellblock.runtime.spec import CellLimits, ServerSpec, ZygoteSpec

REQUEST = RunRequest(handshake.CellJob())
SPEC = ServerSpec(ZygoteSpec(own_processes=True), CellLimits())
NO_CGROUPS = CellCgroups([], [])


class NoClient:
    """A client without events."""

    is_full = False

    def register(
        self,
        descriptor: int,
        handler: Callable[[], None],
        flags: int = select.EPOLLIN,
        on_fault: Callable[[Exception], None] | None = None,
    ) -> None: ...
    def unregister(self, descriptor: int, *, closing: bool = False) -> None: ...
    def pause_reading(self, descriptor: int, flags: int) -> None: ...
    def rearm(self, descriptor: int, flags: int) -> None: ...
    def send(self, frame: bytes, *, can_wait: bool = False) -> None: ...
    def reply(self, frame: bytes, backlog: int) -> None: ...
    def flush(self) -> None: ...


class OthersFirst(Scheduler):
    """A scheduler in which other pools go first while `go_first` is set."""

    go_first = True

    def has_used_share(self, pool: ScheduledPool, useful: int) -> bool:
        """See `Scheduler`."""
        return self.go_first


class PoolOnSockets:
    """Makes a pool and cells, and closes them at the end."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._ours, zygote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        zygote.setblocking(False)
        for end in (self._ours, zygote):
            stack.callback(end.close)

    def make_pool(self, scheduler: Scheduler) -> Pool:
        """Return a pool, which needs its cells to be closed before its sockets."""
        return Pool(NoClient(), self._ours, 0, SPEC, NO_CGROUPS, scheduler=scheduler)

    def make_cell(self, name: str) -> Cell:
        """Return a cell without a process."""
        cell = Cell(name, SPEC, NO_CGROUPS)
        self._stack.callback(cell._peer.close)
        self._stack.callback(cell.close)
        return cell

    def request_fork(self, cell: Cell) -> None:
        """Request the process of a cell."""
        cell.request_fork(self._ours)


@pytest.fixture
def sockets() -> Iterator[PoolOnSockets]:
    with contextlib.ExitStack() as stack:
        yield PoolOnSockets(stack)


def test_no_cells_are_started_beside_ready_ones_while_other_pools_go_first(
    sockets: PoolOnSockets,
) -> None:
    pool = sockets.make_pool(scheduler := OthersFirst())
    ready = sockets.make_cell("ready")
    sockets.request_fork(ready)
    pool._ready.append(ready)
    for number in range(4):
        pool.submit(Job(number, REQUEST, time.monotonic()))
    assert pool._starting == set()
    scheduler.go_first = False
    pool._ready.clear()
    pool.submit(Job(4, REQUEST, time.monotonic()))
    assert len(pool._starting) == 4  # would be fewer if the jobs before had started cells
    for cell in pool._starting:
        cell.close()


def test_an_idle_pool_does_not_count_for_the_share_of_others(sockets: PoolOnSockets) -> None:
    pool = sockets.make_pool(scheduler := Scheduler())
    scheduler.add(pool)
    scheduler.add(other := BusyPool(1))
    # It has one cell, and each of two pools may have one.
    assert scheduler.has_used_share(other, useful=2)
    pool._schedule_idle_work()
    assert not scheduler.has_used_share(other, useful=2)


def test_cells_pretouch_memory_only_while_all_pools_of_the_server_are_idle(
    sockets: PoolOnSockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Independent of the load of this machine.
    monkeypatch.setattr(cellblock.runtime.server.pool, "has_idle_cpu", lambda: True)
    pool = sockets.make_pool(scheduler := Scheduler())
    pool._ready.append(cell := sockets.make_cell("ready"))
    scheduler.add(other := BusyPool(1))
    pool._pretouch()
    with pytest.raises(BlockingIOError):
        cell._peer.recv(10, socket.MSG_DONTWAIT)
    other.cells = 0
    pool._pretouch()
    assert cell._peer.recv(10, socket.MSG_DONTWAIT) == handshake.PRETOUCH


@pytest.mark.parametrize("seconds", [3600.0, 0.0])
def test_idle_cells_stay_until_their_time_is_over_and_one_stays_for_ever(
    seconds: float, sockets: PoolOnSockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cellblock.runtime.server.pool, "_TRIM_AFTER", seconds)
    pool = sockets.make_pool(Scheduler())
    cells = [sockets.make_cell(str(number)) for number in range(8)]
    pool._ready.extend(cells)
    pool._schedule_idle_work()  # the last block has ended
    for _ in cells:
        pool.on_timer()
    assert list(pool._ready) == (cells if seconds else cells[-1:])


def test_idle_cells_are_retired_also_after_all_waiting_blocks_were_cancelled(
    sockets: PoolOnSockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cellblock.runtime.server.pool, "_TRIM_AFTER", 0.0)
    pool = sockets.make_pool(OthersFirst())
    cells = [sockets.make_cell(name) for name in ("first", "second")]
    pool._ready.extend(cells)
    pool.submit(Job(1, REQUEST, time.monotonic()))
    pool._schedule_idle_work()  # the previous block has ended
    pool.cancel(1)
    pool.on_timer()
    assert list(pool._ready) == cells[1:]


class BusyPool:
    """A pool with cells whose blocks have just started."""

    def __init__(self, cells: int) -> None:
        self.cells = cells

    def active_cells(self) -> int:
        """See `ScheduledPool`."""
        return self.cells

    def started_since(self, since: float) -> int:
        """See `ScheduledPool`."""
        return self.cells if since < time.monotonic() else 0


@pytest.mark.parametrize(("pools", "share"), [(2, 3), (4, 1), (8, 1)])
def test_a_pool_starts_its_share_of_six_blocks_but_at_least_one_while_others_are_busy(
    pools: int, share: int
) -> None:
    scheduler, pools_in_use = Scheduler(), [BusyPool(1) for _ in range(pools)]
    for pool in pools_in_use:
        scheduler.add(pool)
    allowed = 0
    for cells in range(6):
        pools_in_use[0].cells = cells
        allowed += not scheduler.has_used_share(pools_in_use[0], 6)
        scheduler.add(pools_in_use[0])
    assert allowed == share


def test_a_single_pool_starts_as_many_blocks_as_it_has_cells() -> None:
    scheduler, pool = Scheduler(), BusyPool(50)
    scheduler.add(pool)
    assert not scheduler.has_used_share(pool, 6)
