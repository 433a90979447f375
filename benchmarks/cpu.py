"""CPU seconds of everything that a measurement causes, by the best means that this machine offers.

A fork server does not wait for its children, so that the kernel adds their time to nobody's: control groups do see it.
"""

from __future__ import annotations

import contextlib
import glob
import os
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

from .processes import tree

_ROOT = "/sys/fs/cgroup"


@dataclass(frozen=True)
class CpuMeter:
    """A reading of CPU seconds: of this process and of all that were started after the meter was made."""

    source: str
    seconds: Callable[[], float]


@contextlib.contextmanager
def cpu_meter() -> Generator[CpuMeter]:
    """Give a meter. Everything that is started meanwhile must have ended when it closes."""
    own = _own_groups()
    with contextlib.ExitStack() as stack:
        if "cpuacct" in own:
            folder = f"{_ROOT}/cpuacct{own['cpuacct']}".rstrip("/")
            with contextlib.suppress(OSError):
                group = stack.enter_context(_moved_to_group(folder, back=folder))
                yield CpuMeter("control group v1, cpuacct", lambda: _read_v1(group))
                return
        if "" in own and os.path.exists(f"{_ROOT}/cgroup.controllers"):
            folder = f"{_ROOT}{own['']}".rstrip("/")
            # A group that holds processes may not have children with controllers: ours goes beside it.
            above = os.path.dirname(folder) if folder != _ROOT else folder
            with contextlib.suppress(OSError):
                group = stack.enter_context(_moved_to_group(above, back=folder))
                yield CpuMeter("control group v2, cpu.stat", lambda: _read_v2(group, above))
                return
        yield CpuMeter("/proc/PID/stat of all living processes: ticks, an estimate", _read_stat)
