"""SIGKILL to the processes of a session and to the server: what clients see, and what is left."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

from benchmarks.figures import Bound, Figure, check_median
from benchmarks.measure import Effort
from benchmarks.processes import count_control_groups, without_zombies
from benchmarks.serving import Client, RequestFailed, Server, running_server

_SESSIONS = 5
_SECONDS = 30.0  # until everything of a killed server must be gone
_NONE = Bound("at most", 0)


def killed_sessions(effort: Effort) -> list[Figure]:
    """Kill the processes of one session after the other, and use all sessions again."""
    broken, errors, others = 0, 0, 0
    with running_server() as server, server.client() as client:
        neighbour = client.create_session()
        client.run(neighbour, "kept = 1")
        for _ in range(effort.pick(100, 5)):
            session, pids = _session_with_processes(server, client)
            _kill(pids)
            broken += not _recovers(client, session)
            others += client.run(neighbour, "print(kept)") != "1\n"
            client.delete_session(session)
        errors = len(server.errors())
    what = "kill -9 of a session"
    return [
        check_median(f"{what}: sessions that cannot be used again", [broken], _NONE),
        check_median(f"{what}: other sessions that lost something", [others], _NONE),
        check_median(f"{what}: errors in the log", [errors], _NONE),
    ]


def killed_server(effort: Effort) -> list[Figure]:
    """Kill the server while sessions run code, and count what is left of them."""
    left: dict[str, list[float]] = {"processes": [], "control groups": [], "folders": []}
    for _ in range(effort.pick(5, 1)):
        with running_server() as server, server.client() as client:
            for _ in range(_SESSIONS):
                code = "import subprocess; subprocess.Popen(['sleep', '1000']); print(1)"
                client.run(client.create_session(), code)
            pids = server.processes()
            server.process.kill()
            server.process.wait()
            counts: dict[str, Callable[[], int]] = {
                "processes": lambda pids=pids: len(without_zombies(pids)),
                "control groups": lambda pids=pids: count_control_groups(pids),
                "folders": lambda server=server: len(server.files()),
            }
            for name, count in counts.items():
                left[name].append(_wait_for_none(count))
    return [
        check_median(f"kill -9 of the server: {name} left", [max(values)], _NONE)
        for name, values in left.items()
    ]


def _session_with_processes(server: Server, client: Client) -> tuple[str, set[int]]:
    """Return a new session and its processes: those that exist only while it runs `sleep`."""
    session = client.create_session()
    client.run(session, "import subprocess; child = subprocess.Popen(['sleep', '1000'])")
    sleeping = {pid for pid in server.processes() if _name(pid) == "sleep"}
    return session, sleeping | {parent for pid in sleeping if (parent := _parent(pid))}


def _recovers(client: Client, session: str) -> bool:
    """Return True if the session runs code again, at the latest in the second request.

    The first run can report the death, because it may have started before.
    """
    for _ in range(2):
        with contextlib.suppress(RequestFailed):
            return client.run(session, "print(6 * 7)") == "42\n"
    return False


def _kill(pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _wait_for_none(count: Callable[[], int]) -> int:
    """Return 0 as soon as nothing is counted, else what is left after a time."""
    deadline = time.monotonic() + _SECONDS
    while (left := count()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _name(pid: int) -> str:
    return _status(pid).get("Name", "")


def _parent(pid: int) -> int:
    return int(_status(pid).get("PPid", "0"))


def _status(pid: int) -> dict[str, str]:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as file:
        lines = (line.split(":", 1) for line in file)
        return {name: value.strip() for name, value in lines}
    return {}
