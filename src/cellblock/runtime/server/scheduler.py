"""Share the CPUs fairly among the pools of one server."""

from __future__ import annotations

import os
import time
from typing import Protocol

CPU_COUNT = os.cpu_count() or 1
# Seconds in which a pool may start its share of blocks. If no block has ended for that long,
# waiting blocks get more cells than there are CPUs for.
TIME_SLICE = 0.02


class ScheduledPool(Protocol):
    """What the scheduler needs of a pool."""

    def active_cells(self) -> int:
        """Return how many cells run a block or are being started."""
        ...

    def started_since(self, since: float) -> int:
        """Return how many active cells started after `since`, a `time.monotonic`, or will start."""
        ...


class Scheduler:
    """The pools that have something to do.

    The argument `useful` is the number of active cells up to which more cells use the CPUs better.
    """

    def __init__(self) -> None:
        self._pools = set[ScheduledPool]()

    def add(self, pool: ScheduledPool) -> None:
        """Add a pool that has something to do."""
        self._pools.add(pool)

    def remove(self, pool: ScheduledPool) -> None:
        """Remove a pool that has nothing to do any more."""
        self._pools.discard(pool)

    def is_idle(self) -> bool:
        """Return True if no pool has an active cell."""
        return not any(pool.active_cells() for pool in self._pools)

    def has_enough_cells(self, useful: int) -> bool:
        """Return True if at least `useful` cells are active."""
        self._pools = {pool for pool in self._pools if pool.active_cells()}
        return sum(pool.active_cells() for pool in self._pools) >= useful

    def has_used_share(self, pool: ScheduledPool, useful: int) -> bool:
        """Return True if other pools' blocks must go before the next one of `pool`.

        A pool without active cells may always start one.
        """
        if len(self._pools) < 2 or not pool.active_cells():
            return False
        now = time.monotonic()
        if pool.started_since(now - TIME_SLICE) >= self._share(useful):
            return (
                True  # no slice is shorter: `time_slice`, which asks all pools, need not be called
            )
        self._pools = {pool for pool in self._pools if pool.active_cells()}
        if len(self._pools) < 2:
            return False
        return pool.started_since(now - self.time_slice(useful)) >= self._share(useful)

    def _share(self, useful: int) -> int:
        return max(1, useful // len(self._pools))

    def time_slice(self, useful: int) -> float:
        """Return the seconds in which each pool may start its share: fewer if most blocks sleep."""
        since = time.monotonic() - TIME_SLICE
        # If all blocks compute, about `useful` of them have just started or will start.
        is_quiet = sum(pool.started_since(since) for pool in self._pools) < 2 * useful
        return TIME_SLICE if is_quiet else TIME_SLICE * len(self._pools)


def has_idle_cpu() -> bool:
    """Return True if there is a CPU for each process that can run now, see proc(5).

    This also counts the blocks of other servers.
    """
    try:
        with open("/proc/loadavg") as file:
            running = int(file.read().split()[3].partition("/")[0])
    except OSError:  # for example too many open files
        return False
    return running <= CPU_COUNT
