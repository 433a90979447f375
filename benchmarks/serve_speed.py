"""A trivial run over HTTP compared with the same run in process, alone and with 64 clients."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Generator, Sequence

from benchmarks.callers import CallCounts, RunCode, run_callers
from benchmarks.figures import Bound, Figure, check_median, compare_medians
from benchmarks.measure import Call, Effort, interleave, time_calls
from benchmarks.serving import Client, running_server
from cellblock import CodeBlock
from cellblock.sync import SandboxSessionCodeExecutor, SandboxSessionServer

_CELL = "x = 1 + 1; print(x)"
_BATCH = 40
_ROUND_SECONDS = 1.0  # short, so that other load affects both sides alike
_FAST = Bound("at most", 3)  # ms


def run_in_process(session: SandboxSessionCodeExecutor, code: str) -> str:
    """Run code in a session of this process and return its output."""
    return session.execute_code_blocks([CodeBlock(code, "python")]).check().output


def trivial_run(effort: Effort) -> list[Figure]:
    """Compare the medians of single runs. The bound applies to the difference in each round."""
    with _in_process(1) as sessions, _over_http(1) as clients:
        (session,), ((client, name),) = sessions, clients
        values = interleave(
            effort.pick(15, 2),
            {
                "http": lambda: _median(lambda: client.run(name, _CELL)),
                "process": lambda: _median(lambda: run_in_process(session, _CELL)),
            },
        )
    added = [http - here for http, here in zip(values["http"], values["process"], strict=True)]
    title = "trivial run over HTTP"
    return [
        compare_medians(
            f"{title}, beside in process",
            values["http"],
            values["process"],
            Bound("at most", 10),
            unit="ms",
            scale=1000,
        ),
        check_median(f"{title}: time added by HTTP (p50)", added, _FAST, unit="ms", scale=1000),
    ]


def sixty_four_clients(effort: Effort) -> list[Figure]:
    """Compare 64 clients of 64 sessions with 64 threads of 64 sessions in process."""
    count, groups = effort.pick(64, 8), list[CallCounts]()

    def measure(run_code: RunCode) -> float:
        groups.append(run_callers(count, _ROUND_SECONDS, run_code))
        return groups[-1].rate

    with _in_process(count) as sessions, _over_http(count) as clients:

        def over_http(caller: int, code: str) -> str:
            client, name = clients[caller]
            return client.run(name, code)

        values = interleave(
            effort.pick(9, 2),
            {
                "http": lambda: measure(over_http),
                "process": lambda: measure(lambda one, code: run_in_process(sessions[one], code)),
            },
        )
    title = f"{count} clients at once"
    return [
        compare_medians(
            f"{title}, beside in process",
            values["http"],
            values["process"],
            Bound("at least", 0.5),
            unit="runs/s",
            note="the clients share the processors with the server",
        ),
        check_median(
            f"{title}: results of another client",
            [sum(group.wrong_results for group in groups)],
            Bound("at most", 0),
        ),
    ]


def _median(call: Call) -> float:
    return statistics.median(time_calls(call, _BATCH))


@contextlib.contextmanager
def _in_process(count: int) -> Generator[Sequence[SandboxSessionCodeExecutor]]:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(SandboxSessionServer())
        yield [stack.enter_context(server.session()) for _ in range(count)]


@contextlib.contextmanager
def _over_http(count: int) -> Generator[Sequence[tuple[Client, str]]]:
    with running_server() as server, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.client()) for _ in range(count)]
        yield [(client, client.create_session()) for client in clients]
