"""Limits, as what a cell server is told to enforce: rlimits, control groups, and what it watches itself."""

from __future__ import annotations

import math
import resource
from typing import Any

from ..errors import BackendError
from ..limits import MIB, Limits
from ..sandbox import cgroups

# Where no control group bounds memory, the tree is watched; this bounds how far one process gets between two looks.
_SLACK_FACTOR, _SLACK_BYTES = 2, 256 * MIB


def rlimits(limits: Limits, *, grouped: bool) -> list[tuple[int, int]]:
    """Give what the kernel holds each process to. `grouped`: control groups hold memory and processes already."""
    # Not 0: a core dump that goes to a program of the machine's is refused at 1 alone; see core(5).
    pairs = [(resource.RLIMIT_CORE, 1)]
    if limits.open_files is not None:
        pairs.append((resource.RLIMIT_NOFILE, limits.open_files))
    if limits.file_bytes is not None:
        pairs.append((resource.RLIMIT_FSIZE, limits.file_bytes))
    if limits.cpu_seconds is not None:
        pairs.append(
            (resource.RLIMIT_CPU, math.ceil(limits.cpu_seconds) + 1)
        )  # after the server, which ends all and says so
    if limits.processes is not None and not grouped:
        pairs.append((resource.RLIMIT_NPROC, limits.processes))
    if limits.memory_bytes is not None and not grouped:
        pairs.append((resource.RLIMIT_DATA, limits.memory_bytes * _SLACK_FACTOR + _SLACK_BYTES))
    return pairs


def plan_groups(limits: Limits) -> dict[str, Any] | None:
    """Plan the control groups of a cell server; `None` where that is not possible, or no limit needs them.

    Raises `BackendError` when `processors` is set, for which there is nothing else.
    """
    if (limits.memory_bytes, limits.processes, limits.processors, limits.cpu_seconds) == (
        None,
    ) * 4:
        return None
    found = cgroups.find()
    if limits.processors is not None and not found.processors:
        why = found.why or "no cpu controller is mounted"
        raise BackendError(
            f"Limits.processors cannot be held here: it needs control groups ({why}). {cgroups.ADVICE}"
        )
    return cgroups.plan(
        found,
        memory_bytes=limits.memory_bytes,
        processes=limits.processes,
        processors=limits.processors,
        times=limits.cpu_seconds is not None,
    )
