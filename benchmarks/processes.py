"""Processes seen from outside: who belongs to an executor, and what they hold."""

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
    """Give all processes of a started executor: its server, and everything below."""
    return _below(executor._executor)  # pyright: ignore[reportUnknownMemberType]


def processes_of_server(server: SandboxSessionServer) -> list[int]:
    """Give all processes of a server that runs: itself, and all sessions."""
    return _below(server.warm)


def _below(owner: Any) -> list[int]:
    return tree(int(owner._connection.pid))


def tree(pid: int) -> list[int]:
    """Give `pid` and everything below it."""
    found = [pid]
    for parent in found:
        for path in glob.glob(f"/proc/{parent}/task/*/children"):
            with contextlib.suppress(OSError), open(path) as file:
                found += map(int, file.read().split())
    return found


def living(pids: list[int]) -> list[int]:
    """Leave out the processes that have ended and are only waited for: they hold nothing."""
    found: list[int] = []
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
            if file.read().rpartition(")")[2].split()[0] not in "ZX":
                found.append(pid)
    return found


def memory(pid: int) -> dict[str, int]:
    """Give the lines of a process's memory map, summed up by the kernel, in bytes. Raises `NotMeasured`."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            lines = [entry.split() for entry in file.readlines()[1:]]
    except OSError as error:
        raise NotMeasured(
            f"The memory of process {pid} cannot be read: {error.strerror}."
        ) from error
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines}


def proportional_bytes(pids: list[int]) -> int:
    """Give the memory of processes, what they share divided by all who share it (PSS)."""
    return sum(memory(pid)["Pss"] for pid in living(pids))


def own_bytes(pids: list[int]) -> int:
    """Give the part of it that is no file's: it does not change with what strangers run."""
    return sum(memory(pid)["Pss_Anon"] + memory(pid)["Pss_Shmem"] for pid in living(pids))


def table_bytes(pids: list[int]) -> int:
    """Give the memory of the tables in which the kernel keeps where the pages of processes are."""
    total = 0
    for pid in living(pids):
        with open(f"/proc/{pid}/status") as file:
            total += sum(
                int(entry.split()[1]) * 1024 for entry in file if entry.startswith("VmPTE:")
            )
    return total


def descriptors(pids: list[int]) -> int:
    """Give the number of open descriptors."""
    return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in living(pids))


def mounts(pids: list[int]) -> int:
    """Give the number of mounts that processes see."""
    count = 0
    for pid in living(pids):
        with open(f"/proc/{pid}/mountinfo") as file:
            count += len(file.readlines())
    return count


def control_groups(pids: list[int]) -> int:
    """Give the number of control groups that the servers among `pids` have made."""
    found = (
        re.search(r"/cellblock-\d+-(\d+)-", folder) for folder, _, _ in os.walk("/sys/fs/cgroup")
    )
    return sum(int(match[1]) in pids for match in found if match)
