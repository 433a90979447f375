"""The same scenario, the same scripted model: AutoGen 0.7.5 and Cellblock do the same.

What may differ is declared in NAME.differences beside the scenario NAME.py: a diff from AutoGen's
lines (-) to ours (+), with the reasons in lines that start with #.
"""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from tests.autogen import autogen_python, run_python

__all__ = ["autogen_python"]

HERE = Path(__file__).parent
SCENARIOS = sorted((HERE / "scenarios").glob("*.py"))

pytestmark = [pytest.mark.network, pytest.mark.timeout(300)]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[path.stem for path in SCENARIOS])
def test_transcripts_are_the_same_but_for_declared_differences(
    scenario: Path, autogen_python: Path
) -> None:
    theirs, ours = (
        run_python(autogen_python, str(HERE / "run_scenario.py"), library, str(scenario))
        for library in ("autogen", "cellblock")
    )
    assert theirs
    assert ours
    diff = difflib.unified_diff(theirs.splitlines(), ours.splitlines(), n=0, lineterm="")
    found = [each for each in diff if not each.startswith(("---", "+++", "@@"))]
    declared = scenario.with_suffix(".differences")
    expected = declared.read_text().splitlines() if declared.exists() else []
    assert found == [each for each in expected if not each.startswith("#")], "\n".join(found)
