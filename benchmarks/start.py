"""Import, start and stop, and the command line."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from benchmarks.figures import Bound, Figure, check_median, compare_medians
from benchmarks.measure import (
    HI,
    Effort,
    interleave,
    run_command,
    run_plain,
    run_sandboxed,
    time_call,
)
from cellblock.sync import SandboxCommandLineCodeExecutor

_PRINT = "print(1)"
_IMPORT_NAMES = "from cellblock import CodeBlock, SandboxCommandLineCodeExecutor"


def cold(effort: Effort) -> list[Figure]:
    """Compare the command that runs one block with a plain Python."""
    command = str(Path(sys.executable).with_name("cellblock"))
    values = interleave(
        effort.pick(20, 3),
        {
            "ours": lambda: time_call(lambda: run_command(command, "run", "-c", _PRINT)),
            "theirs": lambda: time_call(lambda: run_plain("-c", _PRINT)),
        },
    )
    bound = Bound("at most", 110)
    return [
        check_median("`cellblock run -c`", values["ours"], bound, unit="ms", scale=1000),
        check_median("`python -c`", values["theirs"], None, unit="ms", scale=1000),
    ]


def importing(effort: Effort) -> list[Figure]:
    """Measure imports, without the start of the interpreter."""
    statements = ("pass", "import cellblock", _IMPORT_NAMES)
    values = interleave(
        effort.pick(41, 7),
        {text: lambda text=text: time_call(lambda: run_plain("-c", text)) for text in statements},
    )
    bare = statistics.median(values["pass"])
    package, names = ([value - bare for value in values[text]] for text in statements[1:])
    return [
        check_median("`import cellblock`", package, Bound("at most", 20), unit="ms", scale=1000),
        check_median("import of an executor", names, None, unit="ms", scale=1000),
    ]


def starting(effort: Effort) -> list[Figure]:
    """Compare `start()` of a new executor without preload with a plain process that exits."""
    first = _start_seconds()
    values = interleave(
        effort.pick(15, 3),
        {"ours": _start_seconds, "theirs": lambda: time_call(lambda: run_plain("-c", "pass"))},
    )
    measure, note = (
        "`start()`, by `python -c pass`",
        f"the first start in a process: {first * 1000:.0f} ms",
    )
    bound = Bound("at most", 8)
    return [
        compare_medians(
            measure, values["ours"], values["theirs"], bound, unit="ms", scale=1000, note=note
        )
    ]


def _start_seconds() -> float:
    executor = SandboxCommandLineCodeExecutor()
    try:
        return time_call(executor.start)
    finally:
        executor.stop()


def stopping(effort: Effort) -> list[Figure]:
    """Measure `stop()` of an executor that has run a block."""
    values = [_stop_seconds() for _ in range(effort.pick(15, 3))]
    return [check_median("`stop()`", values, Bound("at most", 50), unit="ms", scale=1000)]


def _stop_seconds() -> float:
    executor = SandboxCommandLineCodeExecutor()
    executor.start()
    run_sandboxed(executor, HI)
    return time_call(executor.stop)
