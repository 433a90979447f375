"""The cells of one zygote: how many are made, and when."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable

import pytest

import cellblock.runtime.server.pool
from cellblock.runtime.cell import init
from cellblock.runtime.server.cell import Cell, Job
from cellblock.runtime.server.cgroups import Groups
from cellblock.runtime.server.pool import Pool
from cellblock.runtime.server.scheduler import Crowd, Member

SPEC = {"limits": {}, "zygote": {"own_processes": True, "scripts": False, "namespaces": False}}


class Nobody:
    """An owner for whom nothing ever comes."""

    is_full = False

    def watch(
        self, descriptor: int, handler: Callable[[], None], flags: int = select.EPOLLIN
    ) -> None: ...
    def forget(self, descriptor: int, *, is_to_be_closed: bool = False) -> None: ...
    def hold(self, descriptor: int, flags: int) -> None: ...
    def again(self, descriptor: int, flags: int) -> None: ...
    def send(self, frame: bytes, *, can_wait: bool = False) -> None: ...
    def answer(self, frame: bytes, backlog: int) -> None: ...
    def flush(self) -> None: ...


class Others(Crowd):
    """A crowd whose other members go first for as long as they are said to."""

    go_first = True

    def has_its_share(self, member: Member, useful: int) -> bool:
        """See `Crowd`."""
        return self.go_first


def test_while_others_go_first_no_cells_are_made_beside_those_that_are_ready() -> None:
    ours, zygote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    zygote.setblocking(False)
    pool = Pool(Nobody(), ours, 0, SPEC, Groups([], []), crowd=(crowd := Others()))
    ready = Cell("ready", SPEC, Groups([], []))
    ready.request(ours)
    pool._ready.append(ready)
    for number in range(4):
        pool.add(Job(number, {}, time.monotonic()))
    assert pool._warming == set()
    crowd.go_first = False
    pool._ready.clear()
    pool.add(Job(4, {}, time.monotonic()))
    assert len(pool._warming) == 4  # which none had kept from being made
    for cell in (ready, *pool._warming):
        cell.close()
    for end in (ours, zygote):
        end.close()


def test_a_pool_that_has_nothing_to_do_is_not_counted_among_those_that_share() -> None:
    ours, zygote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pool = Pool(Nobody(), ours, 0, SPEC, Groups([], []), crowd=(crowd := Crowd()))
    crowd.join(pool)
    crowd.join(other := Busy(1))
    assert crowd.has_its_share(other, useful=2)  # one cell, where each of two may have one
    pool._rest_soon()
    assert not crowd.has_its_share(other, useful=2)
    for end in (ours, zygote):
        end.close()


def test_cells_rehearse_only_while_no_pool_of_their_server_has_anything_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        cellblock.runtime.server.pool, "processors_are_free", lambda: True
    )  # whatever else this machine does
    ours, zygote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pool = Pool(Nobody(), ours, 0, SPEC, Groups([], []), crowd=(crowd := Crowd()))
    pool._ready.append(cell := Cell("ready", SPEC, Groups([], [])))
    crowd.join(other := Busy(1))
    pool._rehearse()
    with pytest.raises(BlockingIOError):
        cell._theirs.recv(10, socket.MSG_DONTWAIT)
    other.cells = 0
    pool._rehearse()
    assert cell._theirs.recv(10, socket.MSG_DONTWAIT) == init.REHEARSE
    cell.close()
    cell._theirs.close()
    for end in (ours, zygote):
        end.close()


def test_cells_go_as_well_where_all_that_waited_was_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cellblock.runtime.server.pool, "_IDLE", 0.0)
    ours, zygote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pool = Pool(Nobody(), ours, 0, SPEC, Groups([], []), crowd=Others())
    cells = [Cell(name, SPEC, Groups([], [])) for name in ("first", "second")]
    pool._ready.extend(cells)
    pool.add(Job(1, {}, time.monotonic()))
    pool._rest_soon()  # the block before it has ended
    pool.cancel(1)
    pool.tend()
    assert list(pool._ready) == cells[1:]
    for cell in cells:
        cell.close()
        cell._theirs.close()
    for end in (ours, zygote):
        end.close()


class Busy:
    """A pool of which some cells run blocks that began just now."""

    def __init__(self, cells: int) -> None:
        self.cells = cells

    def at_work(self) -> int:
        """See `Member`."""
        return self.cells

    def young(self, since: float) -> int:
        """See `Member`."""
        return self.cells if since < time.monotonic() else 0


@pytest.mark.parametrize(("pools", "share"), [(2, 3), (4, 1), (8, 1)])
def test_a_pool_begins_its_part_of_six_blocks_while_others_are_busy_and_one_at_least(
    pools: int, share: int
) -> None:
    crowd, members = Crowd(), [Busy(1) for _ in range(pools)]
    for member in members:
        crowd.join(member)
    allowed = 0
    for cells in range(6):
        members[0].cells = cells
        allowed += not crowd.has_its_share(members[0], 6)
        crowd.join(members[0])
    assert allowed == share


def test_a_pool_that_is_alone_begins_as_many_blocks_as_it_has_cells_for() -> None:
    crowd, member = Crowd(), Busy(50)
    crowd.join(member)
    assert not crowd.has_its_share(member, 6)
