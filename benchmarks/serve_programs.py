"""The doors that run each program in a fresh process, beside the library, with 16 clients."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable

from benchmarks.callers import CallCounts, RunCode, run_callers
from benchmarks.figures import Bound, Figure, check_median, compare_medians
from benchmarks.measure import Effort, interleave
from benchmarks.serving import Client, Server, running_server
from cellblock import CodeBlock
from cellblock.sync import SandboxCommandLineCodeExecutor

_CALLERS = 16
_ROUND_SECONDS = 1.0  # short, so that other load affects all alike
_DOORS = {"POST /run_code": Client.judge, "POST /v1/runs": Client.run_once}


def programs(effort: Effort) -> list[Figure]:
    """Compare the programs a second of each door with those of one executor in process."""
    groups: list[CallCounts] = []
    with SandboxCommandLineCodeExecutor() as executor, running_server() as server:

        def in_process(_caller: int, code: str) -> str:
            return executor.execute_code_blocks([CodeBlock(code, "python")]).check().output

        values = interleave(
            effort.pick(15, 2),
            {
                "library": lambda: _rate(groups, in_process),
                **{
                    name: functools.partial(_rate_over_http, groups, server, run)
                    for name, run in _DOORS.items()
                },
            },
        )
    title = f"{_CALLERS} clients at once"
    return [
        *(
            compare_medians(
                f"{name}, {title}, beside the library",
                values[name],
                values["library"],
                Bound("at least", 0.5),
                unit="runs/s",
                note="the clients share the processors with the server",
            )
            for name in _DOORS
        ),
        check_median(
            f"{title}: wrong outputs",
            [sum(group.wrong_results for group in groups)],
            Bound("at most", 0),
        ),
    ]


def _rate_over_http(
    groups: list[CallCounts], server: Server, run: Callable[[Client, str], str]
) -> float:
    with contextlib.ExitStack() as stack:  # anew: the server closes connections that are idle
        clients = [stack.enter_context(server.client()) for _ in range(_CALLERS)]
        return _rate(groups, lambda caller, code: run(clients[caller], code))


def _rate(groups: list[CallCounts], run_code: RunCode) -> float:
    groups.append(run_callers(_CALLERS, _ROUND_SECONDS, run_code))
    return groups[-1].rate
