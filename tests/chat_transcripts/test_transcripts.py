"""The same scenario, the same scripted model: AutoGen 0.2.40 and Cellblock do the same.

What may differ is declared in NAME.differences beside the scenario NAME.py: a diff from AutoGen's
lines (-) to ours (+), with the reasons in lines that start with #.
"""

from __future__ import annotations

import ast
import difflib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from tests.autogen_02 import autogen_02_python

__all__ = ["autogen_02_python"]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCENARIOS = sorted((HERE / "scenarios").glob("*.py"))

pytestmark = [pytest.mark.network, pytest.mark.timeout(300)]


class Library:
    """A process that has imported a library, and runs scenarios in forks of itself."""

    def __init__(self, name: str, python: Path) -> None:
        # AutoGen's executors start a program `python`, which Debian does not have.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        settings = {"PATH": path, "PYTHONPATH": str(ROOT / "src"), "AUTOGEN_USE_DOCKER": "0"}
        self._process = subprocess.Popen(
            [python, "-X", "utf8", HERE / "run_scenario.py", name],
            env={**os.environ, **settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()

    def transcript(self, scenario: Path, folder: Path) -> list[str]:
        """Run a scenario in a folder of its own and return the lines that it prints."""
        folder.mkdir()
        (folder / "answers").write_text("".join(f"{answer}\n" for answer in answers(scenario)))
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(scenario), str(folder)]) + "\n")
        self._process.stdin.flush()
        exit_code = self._process.stdout.readline()
        printed = (folder / "transcript").read_text(encoding="utf-8")
        assert exit_code == "0\n", printed + (folder / "errors").read_text()
        assert printed
        return printed.splitlines()


@pytest.fixture(scope="module")
def theirs(autogen_02_python: Path) -> Iterator[Library]:
    with Library("autogen", autogen_02_python) as library:
        yield library


@pytest.fixture(scope="module")
def ours() -> Iterator[Library]:
    with Library("cellblock", Path(sys.executable)) as library:
        yield library


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[path.stem for path in SCENARIOS])
def test_transcripts_are_the_same_but_for_declared_differences(
    scenario: Path, theirs: Library, ours: Library, tmp_path: Path
) -> None:
    before = theirs.transcript(scenario, tmp_path / "theirs")
    after = ours.transcript(scenario, tmp_path / "ours")
    diff = difflib.unified_diff(before, after, n=0, lineterm="")
    found = [each for each in diff if not each.startswith(("---", "+++", "@@"))]
    declared = scenario.with_suffix(".differences")
    expected = declared.read_text().splitlines() if declared.exists() else []
    assert found == [each for each in expected if not each.startswith("#")], "\n".join(found)


def answers(scenario: Path) -> list[str]:
    """Return `ANSWERS` of a scenario: what the human types."""
    for statement in ast.parse(scenario.read_text()).body:
        match statement:
            case ast.Assign(targets=[ast.Name("ANSWERS")], value=value):
                return ast.literal_eval(value)
            case _:
                pass
    return []
