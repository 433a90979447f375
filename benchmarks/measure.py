"""How things are measured: in turn, in rounds, ours beside a plain process of the same interpreter."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cellblock import CodeBlock
from cellblock.sync import SandboxCommandLineCodeExecutor

HI = "print('hi')"
ROOT = Path(__file__).resolve().parent.parent

Call = Callable[[], str]


class NotMeasured(Exception):
    """Something that a measure needs is not there; the message says what."""


@dataclass(frozen=True)
class Effort:
    """How long to measure: as the thresholds want it, or quickly. `counts`, `texts`: what the command line gives by name."""

    quick: bool = False
    counts: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])
    texts: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])

    def pick(self, full: int, quick: int) -> int:
        """Give the number that fits."""
        return quick if self.quick else full

    def count(self, name: str, full: int, quick: int) -> int:
        """Give the number that the command line gives by `name`, or else the one that fits."""
        return self.counts.get(name) or self.pick(full, quick)


@dataclass(frozen=True)
class Pair:
    """One program, run by us and by a plain process. Both give what it printed, and raise when it fails."""

    ours: Call
    theirs: Call


@contextlib.contextmanager
def pair(code: str, *, preload: tuple[str, ...] = ()) -> Generator[Pair]:
    """Give both ways to run `code`, which were seen to give the same."""
    with (
        tempfile.TemporaryDirectory() as folder,
        SandboxCommandLineCodeExecutor(preload=preload) as executor,
    ):
        file = Path(folder, "block.py")
        file.write_text(code, encoding="utf-8")
        both = Pair(lambda: run_sandboxed(executor, code), lambda: run_plain(str(file)))
        if (ours := both.ours()) != (theirs := both.theirs()):
            raise RuntimeError(
                f"The sandbox gives {ours!r} where a plain process gives {theirs!r}."
            )
        yield both


def run_sandboxed(executor: SandboxCommandLineCodeExecutor, code: str) -> str:
    """Run `code` in a fresh sandboxed process."""
    return executor.execute_code_blocks([CodeBlock(code, "python")]).check().output


def run_plain(*arguments: str) -> str:
    """Run this interpreter with `arguments` as a plain process."""
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True
    ).stdout


def interleave(
    rounds: int, contenders: Mapping[str, Callable[[], float]]
) -> dict[str, list[float]]:
    """Measure each contender once a round, A B A B; what the first round gives is thrown away."""
    values: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, contender in contenders.items():
            value = contender()
            if number:
                values[name].append(value)
    return values


def timed(call: Callable[[], object]) -> float:
    """Give the seconds that `call` takes."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def times(call: Callable[[], object], count: int, *, pause: float = 0) -> list[float]:
    """Give the seconds that each of `count` calls takes, with `pause` seconds before each."""
    found: list[float] = []
    for _ in range(count):
        if pause:
            time.sleep(pause)
        found.append(timed(call))
    return found


def in_fresh_process(module: str, *arguments: str) -> Any:
    """Run `module` in a process, and with a temporary folder, that nothing was done in before; give the JSON it prints."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", module, *arguments]
        environment = {**os.environ, "TMPDIR": folder}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True
        )
    return json.loads(done.stdout)
