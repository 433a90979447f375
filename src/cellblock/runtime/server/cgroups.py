"""A server's control groups: made by itself under its own name, and removed by itself, or by a later one if it was killed."""

from __future__ import annotations

import contextlib
import os
from typing import Any, NamedTuple

from ..linux import process_tree

_OURS = "cellblock"  # a name: that, process namespace, process, when it started


class Groups(NamedTuple):
    """Where a server's cells get control groups, and what is written into them.

    parents   folders in which each cell gets one of its own
    settings  (index of the parent, file, text), in order; a file that the kernel does not have is passed over
    peak      (index, file) of the most memory used, set back by writing 0
    oom       (index, file) with a line ``oom_kill N``
    time      (index, file) of the CPU time used: nanoseconds, or a line ``usage_usec N``
    shared    path of a file with such a line, of a group that all cells are in
    """

    parents: list[str]
    settings: list[tuple[int, str, str]]
    peak: tuple[int, str] | None = None
    oom: tuple[int, str] | None = None
    time: tuple[int, str] | None = None
    shared: str | None = None

    @classmethod
    def make(cls, plan: dict[str, Any] | None) -> Groups:
        """Make the parents that a place's plan asks for, and remove those of servers that were killed. Raises `OSError`.

        The plan holds the fields above as JSON values, but ``folders`` in which the parents are made, and ``controllers``,
        what cgroup v2 has to be told to hand on, or none.
        """
        if not plan:
            return cls([], [])
        settings = [(index, name, text) for index, name, text in plan["settings"]]
        ways = {
            kind: (way[0], way[1]) for kind in ("peak", "oom", "time") if (way := plan.get(kind))
        }
        groups = cls([], settings, **ways, shared=plan.get("shared"))
        name = "-".join((_OURS, _namespace(), str(own := os.getpid()), process_tree.began(own)))
        try:
            for folder in plan["folders"]:
                sweep(folder)
                os.mkdir(f"{folder}/{name}")
                groups.parents.append(f"{folder}/{name}")
            if controllers := plan.get("controllers"):
                with open(f"{groups.parents[0]}/cgroup.subtree_control", "w") as file:
                    file.write(controllers)
        except BaseException:
            groups.remove()
            raise
        return groups

    def remove(self) -> None:
        """Remove the parents; the groups of the cells are gone by then."""
        for parent in self.parents:
            with contextlib.suppress(OSError):
                os.rmdir(parent)


def sweep(folder: str) -> list[str]:
    """Remove the control groups in `folder` of servers that were killed; give what is gone."""
    gone: list[str] = []
    own = _namespace()
    for name in os.listdir(folder):
        match name.split("-"):
            # What another namespace calls a process says nothing here.
            case [ours, namespace, pid, began] if (
                ours == _OURS and namespace == own and pid.isdecimal()
            ):
                is_dead = process_tree.began(int(pid)) != began
            case _:
                is_dead = False
        if is_dead:
            with contextlib.suppress(
                OSError
            ):  # a cell that is still on its way out; or another was quicker
                _remove_with_cells(f"{folder}/{name}")
                gone.append(f"{folder}/{name}")
    return gone


def _remove_with_cells(parent: str) -> None:
    with os.scandir(parent) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                os.rmdir(entry.path)
    os.rmdir(parent)


def _namespace() -> str:
    return str(os.stat("/proc/self/ns/pid").st_ino)
