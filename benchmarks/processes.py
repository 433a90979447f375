"""The processes of an executor, seen from outside, and their resources."""

from __future__ import annotations

import contextlib
import glob
import os
import re
from typing import Any

from benchmarks.measure import NotMeasured
from cellblock import SandboxSessionServer
from cellblock.sync import SandboxCommandLineCodeExecutor


def processes_of(executor: SandboxCommandLineCodeExecutor) -> list[int]:
    """Return the process IDs of a started executor: its server and all descendants."""
    inner: Any = executor._executor  # pyright: ignore[reportUnknownMemberType]
    return process_tree(int(inner.place.connection.pid))


def processes_of_server(server: SandboxSessionServer) -> list[int]:
    """Return the process IDs of a running server and all its sessions."""
    owner: Any = server.runtime_server
    return process_tree(int(owner._connection.pid))


def process_tree(pid: int) -> list[int]:
    """Return `pid` and its descendants."""
    found = [pid]
    for parent in found:
        for path in glob.glob(f"/proc/{parent}/task/*/children"):
            with contextlib.suppress(OSError), open(path) as file:
                found += map(int, file.read().split())
    return found


def without_zombies(pids: list[int]) -> list[int]:
    """Return the running processes of `pids`. Zombies have no resources."""
    found: list[int] = []
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
            if file.read().rpartition(")")[2].split()[0] not in "ZX":
                found.append(pid)
    return found


def memory_map(pid: int) -> dict[str, int]:
    """Return the totals of a process's memory map in bytes. Raise `NotMeasured`."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            lines = [entry.split() for entry in file.readlines()[1:]]
    except OSError as error:
        raise NotMeasured(
            f"The memory of process {pid} cannot be read: {error.strerror}."
        ) from error
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines}


def proportional_bytes(pids: list[int]) -> int:
    """Return the memory of `pids`, with shared pages divided by their number of users (PSS)."""
    return sum(memory_map(pid)["Pss"] for pid in without_zombies(pids))


def anonymous_bytes(pids: list[int]) -> int:
    """Return the anonymous part of that memory, which other programs do not influence."""
    return sum(
        memory_map(pid)["Pss_Anon"] + memory_map(pid)["Pss_Shmem"] for pid in without_zombies(pids)
    )


def private_bytes(pids: list[int]) -> int:
    """Return the memory that only one of `pids` has, and no other process."""
    maps = [memory_map(pid) for pid in without_zombies(pids)]
    return sum(each["Private_Clean"] + each["Private_Dirty"] for each in maps)


def count_descriptors(pids: list[int]) -> int:
    """Return the number of open file descriptors of `pids`."""
    return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in without_zombies(pids))


def count_mounts(pids: list[int]) -> int:
    """Return the number of mounts in the namespaces of `pids`."""
    count = 0
    for pid in without_zombies(pids):
        with open(f"/proc/{pid}/mountinfo") as file:
            count += len(file.readlines())
    return count


def count_control_groups(pids: list[int]) -> int:
    """Return the number of control groups that the servers in `pids` created."""
    found = (
        re.search(r"/cellblock-\d+-(\d+)-", folder) for folder, _, _ in os.walk("/sys/fs/cgroup")
    )
    return sum(int(match[1]) in pids for match in found if match)
