"""The same scenario, the same scripted model: AutoGen 0.2.40 and Cellblock do the same."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.autogen import autogen_02_python
from tests.scenario_process import ScenarioProcess, check_transcripts

__all__ = ["autogen_02_python"]

HERE = Path(__file__).parent
PROGRAM = HERE / "run_scenario.py"
SCENARIOS = sorted((HERE / "scenarios").glob("*.py"))
SLOW = {"story_stock_plot"}  # makes an environment, and installs a package there

pytestmark = [pytest.mark.autogen, pytest.mark.network, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def theirs(autogen_02_python: Path) -> Iterator[ScenarioProcess]:
    with ScenarioProcess(autogen_02_python, PROGRAM, "autogen") as library:
        yield library


@pytest.fixture(scope="module")
def ours() -> Iterator[ScenarioProcess]:
    with ScenarioProcess(Path(sys.executable), PROGRAM, "cellblock") as library:
        yield library


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in SLOW else [])
        for path in SCENARIOS
    ],
)
def test_transcripts_are_the_same_but_for_declared_differences(
    scenario: Path, theirs: ScenarioProcess, ours: ScenarioProcess, tmp_path: Path
) -> None:
    check_transcripts(theirs, ours, scenario, tmp_path, answers(scenario))


def answers(scenario: Path) -> list[str]:
    """Return `ANSWERS` of a scenario: what the human types."""
    for statement in ast.parse(scenario.read_text()).body:
        match statement:
            case ast.Assign(targets=[ast.Name("ANSWERS")], value=value):
                return ast.literal_eval(value)
            case _:
                pass
    return []
