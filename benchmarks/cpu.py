"""CPU seconds of all processes of a measurement, from the best source on this machine.

The zygote does not wait for its children, so the kernel adds their time to no parent. Control
groups include it.
"""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass

from benchmarks.measure import NotMeasured

_ROOT = "/sys/fs/cgroup"
_REMOVE_TIMEOUT = 2.0  # seconds until ended processes have left the group


@dataclass(frozen=True)
class CpuMeter:
    """Reads the CPU seconds of this process and of all processes started after the meter."""

    source: str
    seconds: Callable[[], float]


@dataclass(frozen=True)
class _ParentGroup:
    """A folder in which groups can be created, and the original group of this process."""

    source: str
    folder: str
    original: str


@contextlib.contextmanager
def cpu_meter() -> Generator[CpuMeter]:
    """Yield a meter. All processes that are started in the context must end in it.

    Without the right to make a group, it reads the group of this process, with all that is in it.
    Raise `NotMeasured` if there is no such group.
    """
    for home in _find_parents():
        try:
            group = _create_group(home)
        except OSError:
            continue
        try:
            yield _meter(home, group)
        finally:
            _remove_group(home, group)
        return
    for home in _find_parents():
        if os.access(f"{home.original}/{_usage_file(home)}", os.R_OK):
            yield _meter(home, home.original)
            return
    raise NotMeasured("No control group counts CPU time here.")


def _meter(home: _ParentGroup, group: str) -> CpuMeter:
    return CpuMeter(home.source, lambda: _read(home, group))


def _find_parents() -> list[_ParentGroup]:
    with open("/proc/self/cgroup") as file:
        own = {
            names: path for _, names, path in (entry.rstrip("\n").split(":", 2) for entry in file)
        }
    homes: list[_ParentGroup] = []
    for names, path in own.items():
        folder = f"{_ROOT}/{names}{path}".rstrip("/")
        if "cpuacct" in names.split(","):
            homes.append(_ParentGroup("control group v1, cpuacct", folder, folder))
    if "" in own and os.path.exists(f"{_ROOT}/cgroup.controllers"):
        folder = f"{_ROOT}{own['']}".rstrip("/")
        # A group with processes cannot have children with controllers, so use a sibling.
        homes.append(
            _ParentGroup(
                "control group v2, cpu.stat",
                folder if folder == _ROOT else os.path.dirname(folder),
                folder,
            )
        )
    return homes


def _create_group(home: _ParentGroup) -> str:
    group = f"{home.folder}/benchmark-{secrets.token_hex(4)}"
    os.mkdir(group)
    try:
        _move_self(group)
    except OSError:
        os.rmdir(group)
        raise
    return group


def _remove_group(home: _ParentGroup, group: str) -> None:
    _move_self(home.original)
    deadline = time.monotonic() + _REMOVE_TIMEOUT
    while True:
        try:
            os.rmdir(group)
            return
        except OSError:
            if time.monotonic() > deadline:
                print(f"Processes are left in {group}.", file=sys.stderr)
                return
            time.sleep(0.01)


def _move_self(group: str) -> None:
    with open(f"{group}/cgroup.procs", "w") as file:
        file.write(str(os.getpid()))


def _usage_file(home: _ParentGroup) -> str:
    return "cpuacct.usage" if home.source.startswith("control group v1") else "cpu.stat"


def _read(home: _ParentGroup, group: str) -> float:
    if _usage_file(home) == "cpuacct.usage":
        with open(f"{group}/cpuacct.usage") as file:
            return int(file.read()) / 1e9
    # Executors may have created the groups of their cells as siblings of this one.
    beside = glob.glob(f"{home.folder}/cellblock-{os.getpid()}-*")
    return sum(_usage_v2(folder) for folder in (group, *beside))


def _usage_v2(folder: str) -> float:
    with open(f"{folder}/cpu.stat") as file:
        values = dict(entry.split() for entry in file)
    return int(values["usage_usec"]) / 1e6
