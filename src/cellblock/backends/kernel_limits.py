"""What enforces `Limits`: rlimits, control groups, and checks of the runtime server itself."""

from __future__ import annotations

import math
import os
import sys

from ..errors import BackendError
from ..limits import GIB, Limits
from ..runtime.linux import process_tree
from ..runtime.spec import CellLimits, CgroupPlan
from ..sandbox import cgroups

if sys.platform != "win32":
    import resource

# Without a control group the server checks the memory of the process tree from time to time. This
# bounds what one process can allocate between two checks. It is far above the limit, because an
# allocation that it refuses is an error of the program, not the end for lack of memory.
_SLACK_FACTOR, _SLACK_BYTES = 4, 4 * GIB


def rlimits(
    limits: Limits, *, has_cgroups: bool, counts_user: bool = False
) -> tuple[tuple[int, int], ...]:
    """Return the rlimits of each process.

    With `has_cgroups`, control groups already limit memory and the number of processes. With
    `counts_user`, the kernel counts all that this user runs on the machine, not only blocks.
    """
    # 1 instead of 0: only 1 also disables core dumps that are piped to a program; see core(5).
    pairs = [(resource.RLIMIT_CORE, 1)]
    if limits.open_files is not None:
        pairs.append((resource.RLIMIT_NOFILE, limits.open_files))
    if limits.file_bytes is not None:
        pairs.append((resource.RLIMIT_FSIZE, limits.file_bytes))
    if limits.cpu_seconds is not None:
        # One second later than the server, which ends the whole cell and reports the limit.
        pairs.append((resource.RLIMIT_CPU, math.ceil(limits.cpu_seconds) + 1))
    if limits.processes is not None and not has_cgroups:
        others = process_tree.threads_of_user(os.getuid()) if counts_user else 0
        pairs.append((resource.RLIMIT_NPROC, limits.processes + others))
    if limits.memory_bytes is not None and not has_cgroups:
        pairs.append((resource.RLIMIT_DATA, limits.memory_bytes * _SLACK_FACTOR + _SLACK_BYTES))
    return tuple(pairs)


def cell_limits(limits: Limits) -> CellLimits:
    """Return what the runtime server itself limits."""
    return CellLimits(
        limits.memory_bytes,
        limits.cpu_seconds,
        limits.written_bytes,
        limits.files,
        limits.output_bytes,
    )


def allows_memory_files(limits: Limits, *, has_cgroups: bool) -> bool:
    """Return True if memory that belongs to no process is limited, or need not be."""
    return has_cgroups or limits.memory_bytes is None


def plan_cgroups(limits: Limits) -> CgroupPlan | None:
    """Return the control groups that a runtime server creates for its cells.

    Return None if no limit needs control groups, or if they are not available. Raise
    `BackendError` if they are not available but `processors` is set, which nothing else enforces.
    """
    if (limits.memory_bytes, limits.processes, limits.processors, limits.cpu_seconds) == (
        None,
    ) * 4:
        return None
    support = cgroups.find_cgroups()
    if limits.processors is not None and not support.processors:
        reason = support.why or "no cpu controller is mounted"
        raise BackendError(
            f"Limits.processors cannot be enforced here: it needs control groups ({reason}). "
            f"{cgroups.ADVICE}"
        )
    return cgroups.plan_cgroups(
        support,
        memory_bytes=limits.memory_bytes,
        processes=limits.processes,
        processors=limits.processors,
    )
