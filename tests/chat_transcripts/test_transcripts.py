"""The same scenario, the same scripted model: AutoGen 0.2.40 and Cellblock do the same.

What may differ is declared in NAME.differences beside the scenario NAME.py: a diff from AutoGen's
lines (-) to ours (+), with the reasons in lines that start with #.
"""

from __future__ import annotations

import ast
import difflib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.autogen_02 import autogen_02_python
from tests.scenario_process import ScenarioProcess, both_transcripts

__all__ = ["autogen_02_python"]

HERE = Path(__file__).parent
PROGRAM = HERE / "run_scenario.py"
SCENARIOS = sorted((HERE / "scenarios").glob("*.py"))

pytestmark = [pytest.mark.autogen, pytest.mark.network, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def theirs(autogen_02_python: Path) -> Iterator[ScenarioProcess]:
    with ScenarioProcess(autogen_02_python, PROGRAM, "autogen") as library:
        yield library


@pytest.fixture(scope="module")
def ours() -> Iterator[ScenarioProcess]:
    with ScenarioProcess(Path(sys.executable), PROGRAM, "cellblock") as library:
        yield library


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[path.stem for path in SCENARIOS])
def test_transcripts_are_the_same_but_for_declared_differences(
    scenario: Path, theirs: ScenarioProcess, ours: ScenarioProcess, tmp_path: Path
) -> None:
    before, after = both_transcripts(theirs, ours, scenario, tmp_path, answers(scenario))
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
