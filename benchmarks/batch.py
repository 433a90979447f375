"""Compare `run_many` with plain processes, and see what many runs leave: `benchmarks.batch`.

`--only growth --runs 1000000 --journal FILE` continues where an earlier one with this file ended.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import importlib
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import command
from benchmarks.figures import Bound, Figure, check_median, compare_medians
from benchmarks.measure import Effort, NotMeasured, interleave, run_plain, time_call
from benchmarks.processes import anonymous_bytes, process_tree
from cellblock.batch import JudgeLimits, Program, Summary
from cellblock.batch.pool import usable_cpus
from cellblock.sync import run_many

_MIB = 1 << 20
_SETTLED_GROWTH = Bound("at most", 4)  # MB: allocators, and the cache of the index


def _programs() -> Iterator[Program]:
    return (Program(id=str(number), code=_code(number)) for number in itertools.count())


def _code(number: int) -> str:
    return f"print({number})"


def rate(effort: Effort) -> list[Figure]:
    """Compare the runs per second, with one program at a time on each core."""
    cores = usable_cpus()
    ours, theirs = effort.pick(400, 40), effort.pick(80, 10)
    verdicts, numbers = run_many(_programs()), itertools.count()

    def run_ours() -> None:
        for verdict in itertools.islice(verdicts, ours):
            _check(verdict.output, int(verdict.id))

    def run_theirs() -> None:
        for number, output in pool.map(_run_plain, itertools.islice(numbers, theirs)):
            _check(output, number)

    with concurrent.futures.ThreadPoolExecutor(cores) as pool:
        try:
            values = interleave(
                effort.pick(9, 2),
                {
                    "ours": lambda: ours / time_call(run_ours) / cores,
                    "theirs": lambda: theirs / time_call(run_theirs) / cores,
                },
            )
        finally:
            verdicts.close()
    return [
        compare_medians(
            f"runs per second per core, on {cores}, beside `python -c`",
            values["ours"],
            values["theirs"],
            Bound("at least", 3),
            unit="runs/s",
        )
    ]


def _run_plain(number: int) -> tuple[int, str]:
    return number, run_plain("-c", _code(number))


def _check(output: str, number: int) -> None:
    if output != f"{number}\n":
        raise RuntimeError(f"Program {number} printed {output!r}.")


def growth(effort: Effort) -> list[Figure]:
    """Compare the memory of lasting processes after a tenth of the runs, and after all of them."""
    runs = effort.count("runs", 2000, 200)
    summary = Summary()
    before, after = dict[int, int](), dict[int, int]()

    def keep(latest: Summary) -> None:
        nonlocal summary
        summary = latest

    with tempfile.TemporaryDirectory() as folder:
        for number, verdict in enumerate(
            run_many(
                itertools.islice(_programs(), runs),
                journal=effort.texts.get("journal") or Path(folder, "verdicts.jsonl"),
                on_progress=keep,
            )
        ):
            _check(verdict.output, number)
            if not before and summary.total - summary.resumed >= runs // 10:
                before = _memory()
            if number == runs - 1:
                after = _memory()
    if not before:
        raise NotMeasured(f"The journal has nearly all of {runs} programs: choose more --runs.")
    lasting = before.keys() & after.keys()
    total = sum(before[pid] for pid in lasting)
    note = f"{total / _MIB:.1f} MB before; {runs - summary.resumed} were run now: {summary}"
    return [
        check_median(
            f"{runs} programs with a journal: growth of memory",
            [sum(after[pid] for pid in lasting) - total],
            _SETTLED_GROWTH,
            unit="MB",
            scale=1 / _MIB,
            note=note,
        )
    ]


def _memory() -> dict[int, int]:
    """Return the memory of this process and of its descendants, some of which end meanwhile."""
    found = dict[int, int]()
    for pid in process_tree(os.getpid()):
        with contextlib.suppress(NotMeasured):
            found[pid] = anonymous_bytes([pid])
    return found


# What programs do, and how it ends with 0.5 CPU seconds. Most are short, as in real batches.
_KINDS = (
    *(("print(1)", "passed"), ("assert False", "failed")) * 8,
    ("import time\nwhile time.process_time() < 0.2: pass", "passed"),
    ("while True: pass", "timeout"),
    ("import time; time.sleep(0.5)", "passed"),
    ("x = bytearray(1 << 30)", "limit"),
)


def load(effort: Effort) -> list[Figure]:
    """Count the verdicts that change while ten busy processes compete for each core."""
    count = effort.count("programs", 200, 20)
    kinds = list(itertools.islice(itertools.cycle(_KINDS), count))
    alone = _outcomes(code for code, _ in kinds)
    with contextlib.ExitStack() as stack:
        for _ in range(10 * usable_cpus()):
            busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(busy.wait)
            stack.callback(busy.kill)
        loaded = _outcomes(code for code, _ in kinds)
    expected = [outcome for _, outcome in kinds]
    wrong = sum(each != right for each, right in zip(alone, expected, strict=True))
    changed = sum(each != other for each, other in zip(alone, loaded, strict=True))
    none = Bound("at most", 0)
    return [
        check_median(f"{count} programs: wrong verdicts", [wrong], none),
        check_median(f"{count} programs: verdicts changed by 10 × the load", [changed], none),
    ]


def _outcomes(codes: Iterable[str]) -> list[str]:
    programs = (Program(id=str(number), code=code) for number, code in enumerate(codes))
    limits = JudgeLimits(cpu_seconds=0.5, memory_bytes=200 * _MIB)
    return [verdict.outcome for verdict in run_many(programs, limits=limits)]


def cluster(effort: Effort) -> list[Figure]:
    """Compare a Ray cluster of two nodes with one CPU each with this machine's processes."""
    count = effort.pick(3000, 200)
    with _ray_cluster() as address:
        values = interleave(
            effort.pick(5, 1),
            {
                "ours": lambda: count / time_call(lambda: _run_all(count, cluster=address)),
                "theirs": lambda: count / time_call(lambda: _run_all(count)),
            },
        )
    return [
        compare_medians(
            "runs per second on two nodes of one CPU, beside two on this machine",
            values["ours"],
            values["theirs"],
            Bound("at least", 0.85),
            unit="runs/s",
        )
    ]


def _run_all(count: int, *, cluster: str | None = None) -> None:
    programs = itertools.islice(_programs(), count)
    for verdict in run_many(programs, concurrency=2, cluster=cluster):
        _check(verdict.output, int(verdict.id))


@contextlib.contextmanager
def _ray_cluster() -> Generator[str]:
    """Yield the address of a cluster on loopback, to which this process is connected."""
    try:
        ray: Any = importlib.import_module("ray")
        utilities: Any = importlib.import_module("ray.cluster_utils")
    except ModuleNotFoundError as error:
        raise NotMeasured("Ray is not installed: pip install 'cellblock[ray]'.") from error
    node = {"include_dashboard": False, "object_store_memory": 80 * _MIB}
    started = utilities.Cluster(initialize_head=True, head_node_args={**node, "num_cpus": 0})
    try:
        for _ in range(2):
            started.add_node(num_cpus=1, **node)
        ray.init(started.address, log_to_driver=False, logging_level="error")
        yield started.address
    finally:
        ray.shutdown()
        started.shutdown()


MEASURES: dict[str, command.Measure] = {
    "rate": rate,
    "growth": growth,
    "load": load,
    "cluster": cluster,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks that the command line asks for, and print the figures."""
    command.run(
        "benchmarks.batch",
        MEASURES,
        arguments,
        about=__doc__,
        texts={"journal": "a file that keeps the verdicts of the growth"},
        runs="number of programs of the growth (default: 2000)",
        programs="number of programs of the load (default: 200)",
    )


if __name__ == "__main__":
    main()
