"""Print 1 GB: memory growth of the caller, and time compared with `cat` through a pipe.

Run as a program, this module is that caller, in a fresh process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.figures import Bound, Figure, check_median, compare_medians
from benchmarks.measure import (
    HI,
    Effort,
    interleave,
    run_in_fresh_process,
    run_sandboxed,
    time_call,
)
from cellblock.sync import SandboxCommandLineCodeExecutor

_MIB = 1 << 20
_LINES = "for _ in range({count}):\n    print('x' * {length})"


def printing(effort: Effort) -> list[Figure]:
    """Print 1 GB in lines of 1 MB, or 64 MB with `--quick`."""
    megabytes = effort.pick(1024, 64)
    growths: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "large")
        with file.open("wb") as writer:
            for _ in range(megabytes):
                writer.write(b"x" * (_MIB - 1) + b"\n")

        def ours() -> float:
            measured = run_in_fresh_process(__name__, str(megabytes))
            growths.append(measured["growth_bytes"])
            return measured["seconds"]

        values = interleave(
            effort.pick(5, 2),
            {"ours": ours, "theirs": lambda: time_call(lambda: _read_with_cat(file))},
        )
    measure = f"{megabytes} MB printed"
    return [
        check_median(
            f"{measure}: caller's memory",
            growths,
            Bound("at most", 16),
            unit="MB",
            scale=1 / _MIB,
        ),
        compare_medians(
            f"{measure}, beside `cat`",
            values["ours"],
            values["theirs"],
            Bound("at most", 2),
            unit="s",
        ),
    ]


def _read_with_cat(file: Path) -> None:
    with subprocess.Popen(["cat", str(file)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while os.read(process.stdout.fileno(), 1 << 18):
            pass


def measure_in_this_process(megabytes: int) -> dict[str, float]:
    """Print `megabytes` once; return the seconds and the memory growth of this process."""
    code = _LINES.format(count=megabytes, length=_MIB - 1)
    with SandboxCommandLineCodeExecutor() as executor:
        run_sandboxed(executor, HI)
        # 5 resets the peak memory (VmHWM) to the current value.
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        before = _status_bytes("VmRSS")
        result: list[str] = []
        seconds = time_call(lambda: result.append(run_sandboxed(executor, code)))
        growth = _status_bytes("VmHWM") - before
    if not result[0].startswith("xxx") or "bytes left out" not in result[0]:
        raise RuntimeError("The output of the block is not the expected one.")
    return {"seconds": seconds, "growth_bytes": growth}


def _status_bytes(name: str) -> int:
    with open("/proc/self/status") as file:
        values = dict(entry.split(":", 1) for entry in file)
    return int(values[name].split()[0]) * 1024


if __name__ == "__main__":
    print(json.dumps(measure_in_this_process(int(sys.argv[1]))))
