"""Evaluations of Inspect run in our sandbox: its checks of a provider, and a task of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.executors.session import session_image
from tests.frameworks import INSPECT, SCENARIOS, run_in_framework, run_suite

pytestmark = [pytest.mark.network, pytest.mark.timeout(300)]


@pytest.mark.slow
def test_the_checks_of_inspect_pass(tmp_path: Path) -> None:
    outcomes = run_suite(INSPECT, tmp_path, "inspect_suite.py", "--asyncio-mode=auto")
    assert len(outcomes) == 44
    assert {name: outcome for name, outcome in outcomes.items() if outcome != "passed"} == {
        "test_exec_as_user": "xfailed"  # the sandbox has one user
    }


@pytest.mark.slow
def test_each_sample_has_a_sandbox_until_it_ends(tmp_path: Path) -> None:
    printed = run_in_framework(INSPECT, tmp_path, SCENARIOS / "inspect_task.py")
    assert printed.splitlines() == [
        "success None",
        "1.0",
        "['timeout', None]",
        "False one ['given', 'result']",
        "['timeout', None, None, None, None]",
        "True two ['given', 'made', 'result']",
        "2 [True, True]",
        f"error ValueError(\"config must be a CellblockConfig, not '{tmp_path}/compose.yaml'.\")",
    ]


@pytest.mark.engine
def test_a_sample_can_have_a_container_of_docker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = session_image.use_session_image(monkeypatch)
    printed = run_in_framework(INSPECT, tmp_path, SCENARIOS / "inspect_container.py", image)
    count, outcome, container = printed.splitlines()
    assert (count, outcome) == ("0  2", "success None")
    assert container.startswith("cellblock-")
