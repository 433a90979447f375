"""Many sessions and runs of one server: errors, and what is left of them.

The Azure door is used because it keeps nothing of ended sessions. The server's own interface keeps
results for some minutes, which would hide a leak of memory.
"""

from __future__ import annotations

import functools
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from benchmarks.figures import Bound, Figure, check_median
from benchmarks.measure import Effort
from benchmarks.processes import (
    anonymous_bytes,
    count_control_groups,
    without_zombies,
)
from benchmarks.serving import Client, Server, running_server

_CLIENTS = 16
_LIVE = 10  # sessions of one client at a time
_RUNS = 10  # of each session
_WARM_UP = 200
_IDLE = 3.0  # seconds until all background work has ended
_SETTLE_SECONDS = 20.0
_MIB = 1 << 20
_MEMORY = Bound("at most", 20)  # what allocators keep. A leak of 2 kB a run is larger
_NONE = Bound("at most", 0)
_RESOURCES = (  # name, bound, unit, scale
    ("processes", _NONE, "", 1),
    ("descriptors", _NONE, "", 1),
    ("control_groups", _NONE, "", 1),
    ("files", _NONE, "", 1),
    ("memory", _MEMORY, "MB", 1 / _MIB),
)


@dataclass(frozen=True)
class Resources:
    """What a server holds while it has no session."""

    processes: int
    descriptors: int
    control_groups: int
    files: int
    memory: int

    @classmethod
    def of(cls, server: Server) -> Resources:
        """Count the resources now."""
        pids = server.processes()
        return cls(
            len(without_zombies(pids)),
            len(server.descriptors()),
            count_control_groups(pids),
            len(server.files()),
            anonymous_bytes([server.process.pid]),
        )


def load(effort: Effort) -> list[Figure]:
    """Make many sessions, run code in each, end them, and count what went wrong or is left."""
    sessions = effort.count("sessions", 1000, 40)
    with running_server() as server:
        _use_sessions(server, min(_WARM_UP, sessions))
        before = _settled(server)
        began = time.perf_counter()
        problems = _use_sessions(server, sessions)
        seconds = time.perf_counter() - began
        after = _settled(server, before)
        errors = server.errors()
    runs = sessions * _RUNS
    what = f"{sessions} sessions, {runs} runs"
    return [
        check_median(
            f"{what}: requests that failed",
            [problems.total()],
            _NONE,
            note=str(problems.most_common(3)) if problems else f"{runs / seconds:.0f} runs/s",
        ),
        check_median(f"{what}: errors in the log", [len(errors)], _NONE, note="".join(errors[:1])),
        *_growth(what, before, after),
    ]


def _use_sessions(server: Server, count: int) -> Counter[str]:
    """Use `count` sessions from several clients at once. Return the problems."""
    numbers = [range(first, min(first + _LIVE, count)) for first in range(0, count, _LIVE)]
    with ThreadPoolExecutor(_CLIENTS) as pool:
        return sum(pool.map(functools.partial(_use_batch, server), numbers), Counter[str]())


def _use_batch(server: Server, numbers: range) -> Counter[str]:
    problems = Counter[str]()
    with server.client() as client:
        try:
            for turn in range(_RUNS):
                for number in numbers:
                    problems += _check_turn(client, number, turn)
            for number in numbers:
                client.delete_as_azure(f"session-{number}")
        except Exception as error:  # counted, so that one failure does not hide others
            problems[f"{type(error).__name__}: {error}"[:300]] += 1
    return problems


def _check_turn(client: Client, number: int, turn: int) -> Counter[str]:
    """Run code that continues from the run before. Return the problems."""
    first = "n += 1" if turn else f"n = {number}"
    code = f"{first}\nlength = open('f', 'a').write('x')\nprint(n)"
    output = client.run_as_azure(f"session-{number}", code)
    expected = f"{number + turn}\n"
    return Counter() if output == expected else Counter([f"printed {output!r}, not {expected!r}"])


def _settled(server: Server, most: Resources | None = None) -> Resources:
    """Return the resources after background work has ended.

    With `most`, return as soon as there are no more processes than in it, at the latest after a
    time.
    """
    deadline = time.monotonic() + _SETTLE_SECONDS
    while True:
        time.sleep(_IDLE)
        found = Resources.of(server)
        if most is None or found.processes <= most.processes or time.monotonic() > deadline:
            return found


def _growth(what: str, before: Resources, after: Resources) -> list[Figure]:
    figures: list[Figure] = []
    for name, bound, unit, scale in _RESOURCES:
        start, end = getattr(before, name), getattr(after, name)
        figures.append(
            check_median(
                f"{what}: growth of {name.replace('_', ' ')}",
                [end - start],
                bound,
                unit=unit,
                scale=scale,
                note=f"{start * scale:.4g} {unit}".rstrip() + " before",
            )
        )
    return figures
