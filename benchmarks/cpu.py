"""CPU seconds of everything that a measurement causes, by the best means that this machine offers.

A fork server does not wait for its children, so that the kernel adds their time to nobody's: control groups do see it.
"""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass

from benchmarks.processes import tree

_ROOT = "/sys/fs/cgroup"
_PATIENCE = 2.0  # seconds that ended processes may take to leave the group


@dataclass(frozen=True)
class CpuMeter:
    """A reading of CPU seconds: of this process and of all that were started after the meter was made."""

    source: str
    seconds: Callable[[], float]


@dataclass(frozen=True)
class _Home:
    """A folder in which groups can be made, and the group of this process, to go back to."""

    source: str
    folder: str
    back: str


@contextlib.contextmanager
def cpu_meter() -> Generator[CpuMeter]:
    """Give a meter. Everything that is started meanwhile must have ended when it closes."""
    for home in _homes():
        try:
            group = _enter(home)
        except OSError:
            continue
        try:
            yield _meter(home, group)
        finally:
            _leave(home, group)
        return
    yield CpuMeter("/proc/PID/stat of all living processes; an estimate, in ticks", _read_stat)


def _meter(home: _Home, group: str) -> CpuMeter:
    return CpuMeter(home.source, lambda: _read(home, group))


def _homes() -> list[_Home]:
    with open("/proc/self/cgroup") as file:
        own = {
            names: path for _, names, path in (entry.rstrip("\n").split(":", 2) for entry in file)
        }
    homes: list[_Home] = []
    for names, path in own.items():
        folder = f"{_ROOT}/{names}{path}".rstrip("/")
        if "cpuacct" in names.split(","):
            homes.append(_Home("control group v1, cpuacct", folder, folder))
    if "" in own and os.path.exists(f"{_ROOT}/cgroup.controllers"):
        folder = f"{_ROOT}{own['']}".rstrip("/")
        # A group that holds processes may not have children with controllers: ours goes beside it.
        homes.append(
            _Home(
                "control group v2, cpu.stat",
                folder if folder == _ROOT else os.path.dirname(folder),
                folder,
            )
        )
    return homes


def _enter(home: _Home) -> str:
    group = f"{home.folder}/benchmark-{secrets.token_hex(4)}"
    os.mkdir(group)
    try:
        _move(group)
    except OSError:
        os.rmdir(group)
        raise
    return group


def _leave(home: _Home, group: str) -> None:
    _move(home.back)
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return os.rmdir(group)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _move(group: str) -> None:
    with open(f"{group}/cgroup.procs", "w") as file:
        file.write(str(os.getpid()))


def _read(home: _Home, group: str) -> float:
    if home.source.startswith("control group v1"):
        with open(f"{group}/cpuacct.usage") as file:
            return int(file.read()) / 1e9
    # Executors may have made their cells' groups beside ours.
    beside = glob.glob(f"{home.folder}/cellblock-{os.getpid()}-*")
    return sum(_usage_v2(folder) for folder in (group, *beside))


def _usage_v2(folder: str) -> float:
    with open(f"{folder}/cpu.stat") as file:
        values = dict(entry.split() for entry in file)
    return int(values["usage_usec"]) / 1e6


def _read_stat() -> float:
    # With what those have used whom somebody waited for: each cell waits for the processes of its blocks.
    ticks = 0
    for pid in tree(os.getpid()):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
            ticks += sum(map(int, file.read().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")
