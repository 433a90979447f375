"""1 GB printed: what it does to the caller's memory, and how long it takes beside `cat` through a pipe.

Run as a program, it is that caller: a process that has done nothing else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.figures import Bound, Figure, alone, beside
from benchmarks.measure import HI, Effort, in_fresh_process, interleave, run_sandboxed, timed
from cellblock.sync import SandboxCommandLineCodeExecutor

_MIB = 1 << 20
_LINES = "for _ in range({count}):\n    print('x' * {length})"


def printing(effort: Effort) -> list[Figure]:
    """Print 1 GB in lines of 1 MB (64 MB when quick)."""
    megabytes = effort.pick(1024, 64)
    growths: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "large")
        with file.open("wb") as writer:
            for _ in range(megabytes):
                writer.write(b"x" * (_MIB - 1) + b"\n")

        def ours() -> float:
            seen = in_fresh_process(__name__, str(megabytes))
            growths.append(seen["growth_bytes"])
            return seen["seconds"]

        values = interleave(
            effort.pick(5, 2), {"ours": ours, "theirs": lambda: timed(lambda: _cat(file))}
        )
    measure = f"{megabytes} MB printed"
    return [
        alone(
            f"{measure}: growth of the caller's memory",
            growths,
            Bound("at most", 16),
            unit="MB",
            scale=1 / _MIB,
        ),
        beside(
            f"{measure}, beside cat",
            values["ours"],
            values["theirs"],
            Bound("at most", 2),
            unit="s",
        ),
    ]


def _cat(file: Path) -> None:
    with subprocess.Popen(["cat", str(file)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while os.read(process.stdout.fileno(), 1 << 18):
            pass


def measured_alone(megabytes: int) -> dict[str, float]:
    """Print `megabytes` once, and give the seconds and how far the memory of this process rose above where it stood."""
    code = _LINES.format(count=megabytes, length=_MIB - 1)
    with SandboxCommandLineCodeExecutor() as executor:
        run_sandboxed(executor, HI)
        Path("/proc/self/clear_refs").write_text(
            "5", encoding="ascii"
        )  # the highest so far is now the present
        before = _status("VmRSS")
        result: list[str] = []
        seconds = timed(lambda: result.append(run_sandboxed(executor, code)))
        growth = _status("VmHWM") - before
    if not result[0].startswith("xxx") or "bytes left out" not in result[0]:
        raise RuntimeError("The block did not print what it was to print.")
    return {"seconds": seconds, "growth_bytes": growth}


def _status(name: str) -> int:
    with open("/proc/self/status") as file:
        values = dict(entry.split(":", 1) for entry in file)
    return int(values[name].split()[0]) * 1024


if __name__ == "__main__":
    print(json.dumps(measured_alone(int(sys.argv[1]))))
