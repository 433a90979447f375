"""Getting ready and letting go: importing, starting, stopping."""

from __future__ import annotations

import statistics

from benchmarks.figures import Bound, Figure, alone, beside
from benchmarks.measure import HI, Effort, interleave, run_plain, run_sandboxed, timed
from cellblock.sync import SandboxCommandLineCodeExecutor

_NAMES = "from cellblock import CodeBlock, SandboxCommandLineCodeExecutor"


def importing(effort: Effort) -> list[Figure]:
    """Compare `import cellblock` with `import asyncio`, each in a fresh process and without what that alone needs."""
    statements = ("pass", "import cellblock", "import asyncio", _NAMES)
    values = interleave(
        effort.pick(41, 7),
        {text: lambda text=text: timed(lambda: run_plain("-c", text)) for text in statements},
    )
    bare = statistics.median(values["pass"])
    ours, theirs, names = ([value - bare for value in values[text]] for text in statements[1:])
    note = f"with the names of an executor and a block: {statistics.median(names) / statistics.median(theirs):.2f} ×"
    bound = Bound("at most", 2.5)
    return [
        beside(
            "import cellblock, beside import asyncio",
            ours,
            theirs,
            bound,
            unit="ms",
            scale=1000,
            note=note,
        )
    ]


def starting(effort: Effort) -> list[Figure]:
    """Compare `start()` of a new executor, without preload, with a plain process that does nothing."""
    first = _start_seconds()
    values = interleave(
        effort.pick(15, 3),
        {"ours": _start_seconds, "theirs": lambda: timed(lambda: run_plain("-c", "pass"))},
    )
    measure, note = (
        "start(), beside python -c pass",
        f"the first one of a process: {first * 1000:.0f} ms",
    )
    bound = Bound("at most", 8)
    return [
        beside(measure, values["ours"], values["theirs"], bound, unit="ms", scale=1000, note=note)
    ]


def _start_seconds() -> float:
    executor = SandboxCommandLineCodeExecutor()
    try:
        return timed(executor.start)
    finally:
        executor.stop()


def stopping(effort: Effort) -> list[Figure]:
    """Time `stop()` of an executor that has run something."""
    values = [_stop_seconds() for _ in range(effort.pick(15, 3))]
    return [alone("stop()", values, Bound("at most", 50), unit="ms", scale=1000)]


def _stop_seconds() -> float:
    executor = SandboxCommandLineCodeExecutor()
    executor.start()
    run_sandboxed(executor, HI)
    return timed(executor.stop)
