"""A process that has imported a library, and runs scenarios in forks of itself.

Each line of its standard input is a request, a JSON array: the file of a scenario, and the folder
that it runs in. The folder has the file `answers`, which the fork reads as its standard input; its
output goes to the files `transcript` and `errors`. The answer to a request is a line with the exit
code.
"""

from __future__ import annotations

import difflib
import gc
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Self

ROOT = Path(__file__).parents[1]
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


class ScenarioProcess:
    """The program `program` with the argument `library`, which calls `next_scenario`."""

    def __init__(self, python: Path, program: Path, library: str) -> None:
        # AutoGen's executors start a program `python`, which Debian does not have.
        settings = {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "AUTOGEN_USE_DOCKER": "0",
        }
        self._process = subprocess.Popen(
            [python, "-X", "utf8", program, library],
            env={**os.environ, **settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()

    def transcript(self, scenario: Path, folder: Path, answers: Sequence[str] = ()) -> list[str]:
        """Run a scenario in a new folder and return the lines that it prints."""
        folder.mkdir()
        (folder / "answers").write_text("".join(f"{answer}\n" for answer in answers))
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(scenario), str(folder)]) + "\n")
        self._process.stdin.flush()
        exit_code = self._process.stdout.readline()
        printed = (folder / "transcript").read_text(encoding="utf-8")
        assert exit_code == "0\n", printed + (folder / "errors").read_text()
        assert printed
        return printed.splitlines()


def check_transcripts(
    theirs: ScenarioProcess,
    ours: ScenarioProcess,
    scenario: Path,
    folder: Path,
    answers: Sequence[str] = (),
) -> None:
    """Run a scenario with both libraries; require the same lines but for declared differences.

    They are declared in NAME.differences beside the scenario NAME.py: a diff from AutoGen's lines
    (-) to ours (+), with the reasons in lines that start with #.
    """
    with ThreadPoolExecutor() as threads:
        running = [
            threads.submit(process.transcript, scenario, folder / name, answers)
            for process, name in ((theirs, "theirs"), (ours, "ours"))
        ]
    before, after = (each.result() for each in running)
    diff = difflib.unified_diff(before, after, n=0, lineterm="")
    found = [each for each in diff if not each.startswith(("---", "+++", "@@"))]
    declared = scenario.with_suffix(".differences")
    expected = declared.read_text().splitlines() if declared.exists() else []
    assert found == [each for each in expected if not each.startswith("#")], "\n".join(found)


def next_scenario() -> ModuleType | None:
    """Fork for each request. Return its scenario in the fork, and None after the last one."""
    gc.freeze()  # a fork would look at all that is imported when it ends: 0.5 s of CPU
    for request in sys.stdin:
        if child := os.fork():
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            sys.stdout.write(f"{status}\n")
            sys.stdout.flush()
        else:
            path, folder = json.loads(request)
            os.chdir(folder)
            for descriptor, name in enumerate(("answers", "transcript", "errors")):
                os.dup2(os.open(name, _WRITE if descriptor else os.O_RDONLY, 0o600), descriptor)
            sys.stdin = open(0, encoding="utf-8", closefd=False)
            return _load(path)
    return None


def _load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("scenario", path)
    assert spec is not None
    assert spec.loader is not None
    scenario = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(scenario)
    return scenario
