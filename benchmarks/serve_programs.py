"""The doors that run each program in a fresh process, beside the library, with 16 clients."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Sequence

from benchmarks.callers import RunCode, run_callers
from benchmarks.figures import Bound, Figure, compare_medians
from benchmarks.measure import Effort, interleave
from benchmarks.serving import Client, running_server
from cellblock import CodeBlock
from cellblock.sync import SandboxCommandLineCodeExecutor

_CALLERS = 16
_ROUND_SECONDS = 2.0
_DOORS = {"SandboxFusion": Client.judge, "POST /v1/runs": Client.run_once}


def programs(effort: Effort) -> list[Figure]:
    """Compare the programs a second of each door with those of one executor in process."""
    with SandboxCommandLineCodeExecutor() as executor, _clients() as clients:

        def in_process(_caller: int, code: str) -> str:
            return executor.execute_code_blocks([CodeBlock(code, "python")]).check().output

        doors = {name: _over_http(clients, run) for name, run in _DOORS.items()}
        values = interleave(
            effort.pick(7, 2),
            {
                name: functools.partial(_rate, run)
                for name, run in {"library": in_process, **doors}.items()
            },
        )
    return [
        compare_medians(
            f"{name}, {_CALLERS} clients at once, beside the library",
            values[name],
            values["library"],
            Bound("at least", 0.5),
            unit="runs/s",
            note="the clients share the processors with the server",
        )
        for name in _DOORS
    ]


def _over_http(clients: Sequence[Client], run: Callable[[Client, str], str]) -> RunCode:
    return lambda caller, code: run(clients[caller], code)


def _rate(run_code: RunCode) -> float:
    return run_callers(_CALLERS, _ROUND_SECONDS, run_code).rate


@contextlib.contextmanager
def _clients() -> Generator[Sequence[Client]]:
    with running_server() as server, contextlib.ExitStack() as stack:
        yield [stack.enter_context(server.client()) for _ in range(_CALLERS)]
