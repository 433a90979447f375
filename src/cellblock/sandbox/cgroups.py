"""Control groups: limits on memory, process count and CPUs of a whole process tree.

Version 2 is used where a subtree is delegated to us, version 1 as root.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass

from ..runtime.spec import CgroupPlan

ADVICE = (
    "Run where control groups are delegated: `systemd-run --user --scope -p Delegate=yes …` "
    "(cgroup v2). Otherwise only root has them."
)
_ROOT = "/sys/fs/cgroup"
_MAX_PROCESSES = 4_194_304  # of a 64-bit machine; the largest number that pids.max accepts
_PERIOD_MICROSECONDS = 100_000  # the default of the kernel, which accepts up to 1 s


@dataclass(frozen=True)
class CgroupSupport:
    """The folders in which control groups can be created, per controller; "" if there is none.

    version   0 if no control groups can be created
    why       what is missing
    """

    version: int
    why: str = ""
    memory: str = ""
    processes: str = ""
    processors: str = ""
    cpu_time: str = ""

    @property
    def folders(self) -> list[str]:
        """All folders in which groups are created, without duplicates; one folder in version 2."""
        return list(
            dict.fromkeys(
                filter(None, (self.memory, self.processes, self.processors, self.cpu_time))
            )
        )


def find_cgroups() -> CgroupSupport:
    """Find where groups with a memory limit can be created. Try it with groups that are removed."""
    current = _current_cgroups()
    reasons: list[str] = []
    for candidate in _v2_candidates(current):
        if _is_usable(candidate, ("memory.max", "pids.max"), reasons):
            processors = candidate if _is_usable(candidate, ("cpu.max",), reasons) else ""
            return CgroupSupport(2, "; ".join(reasons), candidate, candidate, processors, candidate)
    memory = _v1_folder(current, "memory")
    if memory and _is_usable(memory, ("memory.limit_in_bytes",), reasons):
        others = {"pids": "pids.max", "cpu": "cpu.cfs_quota_us", "cpuacct": "cpuacct.usage"}
        folders = {name: _v1_folder(current, name) for name in others}
        usable = {
            name: path
            for name, path in folders.items()
            if path and _is_usable(path, (others[name],), reasons)
        }
        return CgroupSupport(
            1, "; ".join(reasons), memory, *(usable.get(name, "") for name in others)
        )
    return CgroupSupport(0, "; ".join(dict.fromkeys(reasons)) or "no memory controller is mounted")


def use_delegated_group() -> None:
    """Make groups possible in the one that was delegated to this process, as systemd does.

    Call it before this process starts others. It does nothing if groups are possible already.
    """
    candidates = _v2_candidates(_current_cgroups())
    if candidates and candidates[0] != _ROOT and not find_cgroups().version:
        with contextlib.suppress(OSError):  # it was not delegated
            move_to_child(candidates[0])


def move_to_child(group: str) -> None:
    """Move this process to a child of its group, so that other children can have limits.

    In version 2, a group has either processes or children with limits. Do nothing if the group has
    other processes or no memory limits. Raise `OSError` if it was not delegated.
    """
    own = str(os.getpid())
    names = [name for name in ("cpu", "memory", "pids") if name in _words(group, "controllers")]
    if "memory" in names and _words(group, "procs") == [own]:
        os.makedirs(f"{group}/server", exist_ok=True)
        _write(f"{group}/server/cgroup.procs", own)
        _write(f"{group}/cgroup.subtree_control", " ".join(f"+{name}" for name in names))


def _words(group: str, file: str) -> list[str]:
    with open(f"{group}/cgroup.{file}") as opened:
        return opened.read().split()


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _current_cgroups() -> dict[str, str]:
    """Return the group of this process by controller; the key of version 2 is empty."""
    groups: dict[str, str] = {}
    with contextlib.suppress(OSError), open("/proc/self/cgroup") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            groups.update(dict.fromkeys(controllers.split(","), path))
    return groups


def _v2_candidates(current: dict[str, str]) -> list[str]:
    if "" not in current or not os.path.exists(f"{_ROOT}/cgroup.controllers"):
        return []
    here = f"{_ROOT}{current['']}".rstrip("/")
    # A group that holds processes cannot have children with controllers, but its parent may.
    return [here, os.path.dirname(here)] if here != _ROOT else [here]


def _v1_folder(current: dict[str, str], controller: str) -> str:
    folder = f"{_ROOT}/{controller}{current.get(controller, '')}".rstrip("/")
    return folder if controller in current and os.path.isdir(folder) else ""


def _is_usable(folder: str, files: tuple[str, ...], reasons: list[str]) -> bool:
    probe = f"{folder}/cellblock-probe-{secrets.token_hex(4)}"
    try:
        os.mkdir(probe)
    except OSError as error:
        reasons.append(f"{folder}: {error.strerror}")
        return False
    try:
        missing = [name for name in files if not os.access(f"{probe}/{name}", os.W_OK)]
        if missing:
            reasons.append(f"{folder}: no {missing[0]}")
        return not missing
    finally:
        os.rmdir(probe)


def plan_cgroups(
    support: CgroupSupport,
    *,
    memory_bytes: int | None,
    processes: int | None,
    processors: float | None = None,
) -> CgroupPlan | None:
    """Return what a runtime server needs to create groups for its cells.

    A cell has the same share of the processors as another one, however many processes it has. The
    server, outside, has its own. Return None if no groups can be created.
    """
    if not support.version:
        return None
    folders = support.folders
    settings = _settings(support, memory_bytes, processes, processors)
    is_v2 = support.version == 2
    return CgroupPlan(
        tuple(folders),
        tuple((folders.index(folder), file, text) for folder, file, text in settings),
        peak=(0, "memory.peak" if is_v2 else "memory.max_usage_in_bytes"),
        oom=(0, "memory.events" if is_v2 else "memory.oom_control"),
        time=(folders.index(support.cpu_time), "cpu.stat" if is_v2 else "cpuacct.usage")
        if support.cpu_time
        else None,
        controllers=""
        if not is_v2
        else "+memory +pids +cpu"
        if support.processors
        else "+memory +pids",
        share=(folders.index(support.processors), *_share_of_all(is_v2=is_v2))
        if support.processors
        else None,
    )


def _share_of_all(*, is_v2: bool) -> tuple[str, str]:
    """Return the file and the text that give all cells as much as one program per processor."""
    programs = os.cpu_count() or 1
    return ("cpu.weight", str(100 * programs)) if is_v2 else ("cpu.shares", str(1024 * programs))


def _settings(
    support: CgroupSupport,
    memory_bytes: int | None,
    processes: int | None,
    processors: float | None,
) -> list[tuple[str, str, str]]:
    """Return what to write: folder of the controller, file, text."""
    settings: list[tuple[str, str]] = []
    if memory_bytes is not None:
        size = str(memory_bytes)
        if support.version == 2:
            settings += [("memory.max", size), ("memory.swap.max", "0")]
        else:
            settings += [("memory.limit_in_bytes", size), ("memory.memsw.limit_in_bytes", size)]
    settings_by_folder = [(support.memory, *setting) for setting in settings]
    if processes is not None and support.processes:
        settings_by_folder.append(
            (
                support.processes,
                "pids.max",
                str(processes) if processes <= _MAX_PROCESSES else "max",
            )
        )
    if processors is not None and support.processors:
        quota = round(processors * _PERIOD_MICROSECONDS)
        file, text = (
            ("cpu.max", f"{quota} {_PERIOD_MICROSECONDS}")
            if support.version == 2
            else ("cpu.cfs_quota_us", str(quota))
        )
        settings_by_folder.append((support.processors, file, text))
    return settings_by_folder
