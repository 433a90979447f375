"""Control groups: memory and process count of a whole tree, v2 where a subtree is ours, v1 as root, else none."""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass
from typing import Any

_ROOT = "/sys/fs/cgroup"


@dataclass(frozen=True)
class Found:
    """Where groups can be made. `version` is 0 where they cannot, and `why` says what is missing."""

    version: int
    why: str = ""
    memory: str = ""
    processes: str = ""


def find() -> Found:
    """Find out, by making groups and removing them again, where groups with a memory limit can be made."""
    own = _own_groups()
    reasons: list[str] = []
    for candidate in _v2_candidates(own):
        if _works(candidate, ("memory.max", "pids.max"), reasons):
            return Found(2, memory=candidate, processes=candidate)
    memory, processes = _v1_folder(own, "memory"), _v1_folder(own, "pids")
    if memory and _works(memory, ("memory.limit_in_bytes",), reasons):
        usable = processes if processes and _works(processes, ("pids.max",), reasons) else ""
        return Found(1, memory=memory, processes=usable)
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


def plan(found: Found, *, memory_bytes: int | None, processes: int | None) -> dict[str, Any] | None:
    """Make this executor's parent groups and give what the cell server needs to make one below for each cell.

    Whoever is given the plan removes the parents. `None` where no group can be made.
    """
    if not found.version:
        return None
    name = f"cellblock-{os.getpid()}-{secrets.token_hex(4)}"
    parents = [f"{found.memory}/{name}"]
    if found.version == 1 and found.processes:
        parents.append(f"{found.processes}/{name}")
    for parent in parents:
        os.mkdir(parent)
    if found.version == 2:
        with open(f"{parents[0]}/cgroup.subtree_control", "w") as file:
            file.write("+memory +pids")
    return {
        "parents": parents,
        "settings": _settings(found, memory_bytes, processes),
        "peak": (0, "memory.peak" if found.version == 2 else "memory.max_usage_in_bytes"),
        "oom": (0, "memory.events" if found.version == 2 else "memory.oom_control"),
    }


def _settings(found: Found, memory_bytes: int | None, processes: int | None) -> list[tuple[int, str, str]]:
    settings: list[tuple[int, str, str]] = []
    if memory_bytes is not None:
        size = str(memory_bytes)
        if found.version == 2:
            settings += [(0, "memory.max", size), (0, "memory.swap.max", "0"), (0, "memory.oom.group", "1")]
        else:
            settings += [(0, "memory.limit_in_bytes", size), (0, "memory.memsw.limit_in_bytes", size)]
    if processes is not None and found.processes:
        settings.append((0 if found.version == 2 else 1, "pids.max", str(processes)))
    return settings
