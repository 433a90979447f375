"""Measure Cellblock and a plain process of the same interpreter in turn, in rounds."""

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
    """Something that a measurement needs is missing. The message says what."""


@dataclass(frozen=True)
class Effort:
    """How much to measure.

    `quick` means fewer rounds than the bounds need. `counts` and `texts` are options of the command
    line, by name.
    """

    quick: bool = False
    counts: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])
    texts: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])

    def pick(self, full: int, quick: int) -> int:
        """Return `quick` for a quick run, else `full`."""
        return quick if self.quick else full

    def count(self, name: str, full: int, quick: int) -> int:
        """Return the option `name` of the command line; by default `quick` or `full`."""
        return self.counts.get(name) or self.pick(full, quick)


@dataclass(frozen=True)
class Pair:
    """One program, run in the sandbox and in a plain process.

    Both calls return what the program printed, and raise an exception if it fails.
    """

    ours: Call
    theirs: Call


@contextlib.contextmanager
def paired_runs(code: str, *, preload: tuple[str, ...] = ()) -> Generator[Pair]:
    """Yield both ways to run `code`, after a check that both print the same."""
    with (
        tempfile.TemporaryDirectory() as folder,
        SandboxCommandLineCodeExecutor(preload=preload) as executor,
    ):
        file = Path(folder, "block.py")
        file.write_text(code, encoding="utf-8")
        both = Pair(lambda: run_sandboxed(executor, code), lambda: run_plain(str(file)))
        if (ours := both.ours()) != (theirs := both.theirs()):
            raise RuntimeError(f"The sandbox printed {ours!r}, a plain process printed {theirs!r}.")
        yield both


def run_sandboxed(executor: SandboxCommandLineCodeExecutor, code: str) -> str:
    """Run `code` in a fresh sandboxed process."""
    return executor.execute_code_blocks([CodeBlock(code, "python")]).check().output


def run_plain(*arguments: str) -> str:
    """Run this interpreter with `arguments` as a plain process."""
    return run_command(sys.executable, *arguments)


def run_command(*line: str) -> str:
    """Run a command as a plain process and return its output."""
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout


def interleave(
    rounds: int, contenders: Mapping[str, Callable[[], float]]
) -> dict[str, list[float]]:
    """Measure each contender once per round, A B A B. The first round is discarded."""
    values: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, contender in contenders.items():
            value = contender()
            if number:
                values[name].append(value)
    return values


def time_call(call: Callable[[], object]) -> float:
    """Return the seconds that `call` takes."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def time_calls(call: Callable[[], object], count: int, *, pause: float = 0) -> list[float]:
    """Return the seconds that each of `count` calls takes. Sleep `pause` seconds before each."""
    found: list[float] = []
    for _ in range(count):
        if pause:
            time.sleep(pause)
        found.append(time_call(call))
    return found


def run_in_fresh_process(module: str, *arguments: str) -> Any:
    """Run `module` in a fresh process with an empty temporary folder; return its JSON output."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", module, *arguments]
        environment = {**os.environ, "TMPDIR": folder}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True
        )
    return json.loads(done.stdout)
