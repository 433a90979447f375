"""The same scenario, the same scripted model: AutoGen 0.7.5 and Cellblock do the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.autogen import autogen_python
from tests.scenario_process import ScenarioProcess, check_transcripts

__all__ = ["autogen_python"]

HERE = Path(__file__).parent
PROGRAM = HERE / "run_scenario.py"
SCENARIOS = sorted((HERE / "scenarios").glob("*.py"))

pytestmark = [pytest.mark.autogen, pytest.mark.network, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def theirs(autogen_python: Path) -> Iterator[ScenarioProcess]:
    with ScenarioProcess(autogen_python, PROGRAM, "autogen") as library:
        yield library


@pytest.fixture(scope="module")
def ours(autogen_python: Path) -> Iterator[ScenarioProcess]:
    with ScenarioProcess(autogen_python, PROGRAM, "cellblock") as library:
        yield library


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[path.stem for path in SCENARIOS])
def test_transcripts_are_the_same_but_for_declared_differences(
    scenario: Path, theirs: ScenarioProcess, ours: ScenarioProcess, tmp_path: Path
) -> None:
    check_transcripts(theirs, ours, scenario, tmp_path)
