"""The same scenario, the same scripted model: AutoGen 0.2.40 and Cellblock do the same.

What may differ is declared in NAME.differences beside the scenario NAME.py: a diff from AutoGen's
lines (-) to ours (+), with the reasons in lines that start with #.
"""

from __future__ import annotations

import ast
import difflib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.autogen_02 import autogen_02_python

__all__ = ["autogen_02_python"]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCENARIOS = sorted((HERE / "scenarios").glob("*.py"))

pytestmark = [pytest.mark.network, pytest.mark.timeout(300)]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[path.stem for path in SCENARIOS])
def test_transcripts_are_the_same_but_for_declared_differences(
    scenario: Path, autogen_02_python: Path, tmp_path: Path
) -> None:
    theirs = transcript("autogen", autogen_02_python, scenario, tmp_path / "theirs")
    ours = transcript("cellblock", Path(sys.executable), scenario, tmp_path / "ours")
    diff = difflib.unified_diff(theirs, ours, n=0, lineterm="")
    found = [each for each in diff if not each.startswith(("---", "+++", "@@"))]
    declared = scenario.with_suffix(".differences")
    expected = declared.read_text().splitlines() if declared.exists() else []
    assert found == [each for each in expected if not each.startswith("#")], "\n".join(found)


def transcript(library: str, python: Path, scenario: Path, folder: Path) -> list[str]:
    """Run a scenario in a folder of its own and return the lines that it prints."""
    folder.mkdir()
    done = subprocess.run(
        [python, "-X", "utf8", HERE / "run_scenario.py", library, scenario],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "AUTOGEN_USE_DOCKER": "0"},
        input="".join(f"{answer}\n" for answer in answers(scenario)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout
    return done.stdout.splitlines()


def answers(scenario: Path) -> list[str]:
    """Return `ANSWERS` of a scenario: what the human types."""
    for statement in ast.parse(scenario.read_text()).body:
        match statement:
            case ast.Assign(targets=[ast.Name("ANSWERS")], value=value):
                return ast.literal_eval(value)
            case _:
                pass
    return []
