"""Control groups: memory, process count and processors of a whole tree, v2 where a subtree is ours, v1 as root, else none."""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass, replace
from typing import Any

ADVICE = "Run as root, or where control groups are delegated: `systemd-run --user --scope -p Delegate=yes …` (cgroup v2)."
_ROOT = "/sys/fs/cgroup"
_MOST_PROCESSES = (
    4_194_304  # that a machine of 64 bits can have; a group takes no larger number (pids.max)
)
_PERIOD = 100_000  # microseconds: the kernel's own, and the longest that it takes is ten times that


@dataclass(frozen=True)
class Found:
    """Where groups can be made. `version` is 0 where they cannot, and `why` says what is missing."""

    version: int
    why: str = ""
    memory: str = ""
    processes: str = ""
    processors: str = ""
    time: str = ""

    @property
    def folders(self) -> list[str]:
        """All folders in which groups are made: one for all in version 2."""
        return list(
            dict.fromkeys(filter(None, (self.memory, self.processes, self.processors, self.time)))
        )


def find() -> Found:
    """Find out, by making groups and removing them again, where groups with a memory limit can be made."""
    own = _own_groups()
    reasons: list[str] = []
    for candidate in _v2_candidates(own):
        if _works(candidate, ("memory.max", "pids.max"), reasons):
            processors = candidate if _works(candidate, ("cpu.max",), reasons) else ""
            return Found(2, "; ".join(reasons), candidate, candidate, processors, candidate)
    memory = _v1_folder(own, "memory")
    if memory and _works(memory, ("memory.limit_in_bytes",), reasons):
        others = {"pids": "pids.max", "cpu": "cpu.cfs_quota_us", "cpuacct": "cpuacct.usage"}
        folders = {name: _v1_folder(own, name) for name in others}
        usable = {
            name: path
            for name, path in folders.items()
            if path and _works(path, (others[name],), reasons)
        }
        return Found(1, "; ".join(reasons), memory, *(usable.get(name, "") for name in others))
    return Found(0, "; ".join(dict.fromkeys(reasons)) or "no memory controller is mounted")


def _own_groups() -> dict[str, str]:
    """Give the group of this process for each controller; the key of version 2 is empty."""
    groups: dict[str, str] = {}
    with contextlib.suppress(OSError), open("/proc/self/cgroup") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            groups.update(dict.fromkeys(controllers.split(","), path))
    return groups


def _v2_candidates(own: dict[str, str]) -> list[str]:
    if "" not in own or not os.path.exists(f"{_ROOT}/cgroup.controllers"):
        return []
    here = f"{_ROOT}{own['']}".rstrip("/")
    # A group that holds processes cannot have children with controllers: the one above may.
    return [here, os.path.dirname(here)] if here != _ROOT else [here]


def _v1_folder(own: dict[str, str], controller: str) -> str:
    folder = f"{_ROOT}/{controller}{own.get(controller, '')}".rstrip("/")
    return folder if controller in own and os.path.isdir(folder) else ""


def _works(folder: str, files: tuple[str, ...], reasons: list[str]) -> bool:
    trial = f"{folder}/cellblock-probe-{secrets.token_hex(4)}"
    try:
        os.mkdir(trial)
    except OSError as error:
        reasons.append(f"{folder}: {error.strerror}")
        return False
    try:
        missing = [name for name in files if not os.access(f"{trial}/{name}", os.W_OK)]
        if missing:
            reasons.append(f"{folder}: no {missing[0]}")
        return not missing
    finally:
        os.rmdir(trial)


def plan(
    found: Found,
    *,
    memory_bytes: int | None,
    processes: int | None,
    processors: float | None = None,
    times: bool = False,
) -> dict[str, Any] | None:
    """Give what a cell server needs to make groups for its cells; `times`: they count CPU time. `None`: none can be made."""
    if not found.version:
        return None
    used = replace(
        found,
        processors="" if processors is None else found.processors,
        time=found.time if times else "",
    )
    folders = used.folders
    settings = _settings(found, memory_bytes, processes, processors)
    return {
        "folders": folders,
        "controllers": ""
        if found.version == 1
        else "+memory +pids"
        if processors is None
        else "+memory +pids +cpu",
        "settings": [(folders.index(folder), file, text) for folder, file, text in settings],
        "peak": (0, "memory.peak" if found.version == 2 else "memory.max_usage_in_bytes"),
        "time": (folders.index(used.time), "cpu.stat" if found.version == 2 else "cpuacct.usage")
        if used.time
        else None,
        "oom": (0, "memory.events" if found.version == 2 else "memory.oom_control"),
    }


def _settings(
    found: Found, memory_bytes: int | None, processes: int | None, processors: float | None
) -> list[tuple[str, str, str]]:
    """Give what is written where: folder of the controller, file, text."""
    settings: list[tuple[str, str]] = []
    if memory_bytes is not None:
        size = str(memory_bytes)
        if found.version == 2:
            settings += [("memory.max", size), ("memory.swap.max", "0"), ("memory.oom.group", "1")]
        else:
            settings += [("memory.limit_in_bytes", size), ("memory.memsw.limit_in_bytes", size)]
    placed = [(found.memory, *setting) for setting in settings]
    if processes is not None and found.processes:
        placed.append(
            (found.processes, "pids.max", str(processes) if processes <= _MOST_PROCESSES else "max")
        )
    if processors is not None and found.processors:
        quota = round(processors * _PERIOD)
        file, text = (
            ("cpu.max", f"{quota} {_PERIOD}")
            if found.version == 2
            else ("cpu.cfs_quota_us", str(quota))
        )
        placed.append((found.processors, file, text))
    return placed
