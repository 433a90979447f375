"""The control groups of a server. It creates them under its own name and removes them at its end.

If it was killed, the next server on this machine removes them.
"""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

from ..linux import process_tree
from ..spec import CgroupPlan

_PREFIX = "cellblock"  # names are PREFIX-NAMESPACE-PID-START: the server's process, and its start


class CellCgroups(NamedTuple):
    """Where the cells of a server get control groups, and what is written to these.

    parents   folders in which each cell gets a group of its own
    settings  (index of the parent, file, text), in order; a file that the kernel lacks is skipped
    peak      (index, file) of the most memory used, reset by writing 0
    oom       (index, file) with a line ``oom_kill N``
    time      (index, file) of the CPU time used: nanoseconds, or a line ``usage_usec N``
    shared    path of a file with such an ``oom_kill`` line, of a group that holds all cells
    """

    parents: list[str]
    settings: list[tuple[int, str, str]]
    peak: tuple[int, str] | None = None
    oom: tuple[int, str] | None = None
    time: tuple[int, str] | None = None
    shared: str | None = None

    @classmethod
    def create(cls, plan: CgroupPlan | None) -> CellCgroups:
        """Create the parents for `plan`, and remove those of killed servers. Raise `OSError`."""
        if plan is None:
            return cls([], [])
        cgroups = cls([], [*plan.settings], plan.peak, plan.oom, plan.time, plan.shared)
        name = "-".join(
            (_PREFIX, _namespace(), str(own := os.getpid()), process_tree.start_time(own))
        )
        try:
            for folder in plan.folders:
                remove_orphans(folder)
                os.mkdir(f"{folder}/{name}")
                cgroups.parents.append(f"{folder}/{name}")
            if plan.share is not None:
                index, file, text = plan.share
                with contextlib.suppress(OSError):  # then all cells count as one program
                    _write(f"{cgroups.parents[index]}/{file}", text)
            if plan.controllers:
                _write(f"{cgroups.parents[0]}/cgroup.subtree_control", plan.controllers)
        except BaseException:
            cgroups.remove()
            raise
        return cgroups

    def remove(self) -> None:
        """Remove the parents. The groups of all cells must be gone."""
        for parent in self.parents:
            with contextlib.suppress(OSError):
                os.rmdir(parent)


def remove_orphans(folder: str) -> list[str]:
    """Remove the control groups in `folder` whose server was killed. Return the removed paths."""
    removed: list[str] = []
    own = _namespace()
    for name in os.listdir(folder):
        match name.split("-"):
            # Process IDs of another namespace have no meaning here.
            case [prefix, namespace, pid, start] if (
                prefix == _PREFIX and namespace == own and pid.isdecimal()
            ):
                is_dead = process_tree.start_time(int(pid)) != start
            case _:
                is_dead = False
        if is_dead:
            # A cell may not have ended yet, or another server may have removed the group first.
            with contextlib.suppress(OSError):
                _remove_with_cells(f"{folder}/{name}")
                removed.append(f"{folder}/{name}")
    return removed


def _remove_with_cells(parent: str) -> None:
    with os.scandir(parent) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                os.rmdir(entry.path)
    os.rmdir(parent)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _namespace() -> str:
    return str(os.stat("/proc/self/ns/pid").st_ino)
