"""Evaluations of Inspect run in our sandbox: its checks of a provider, and a task of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cellblock.sandbox.probe import find_sub_ids
from tests.executors.session import session_image
from tests.frameworks import PINS, SCENARIOS, run_in_framework, run_suite
from tests.sandbox.images.small_root import make_root

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.timeout(300)]


def test_the_checks_of_inspect_pass(tmp_path: Path) -> None:
    outcomes = run_suite(PINS["inspect"], tmp_path, "inspect_suite.py", "--asyncio-mode=auto")
    assert len(outcomes) == 44
    expected = {"test_exec_as_user": "xfailed"} if isinstance(find_sub_ids(), str) else {}
    assert {name: done for name, done in outcomes.items() if done != "passed"} == expected


def test_each_sample_has_a_sandbox_until_it_ends(tmp_path: Path) -> None:
    printed = run_in_framework(PINS["inspect"], tmp_path, SCENARIOS / "inspect_task.py")
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


def run_configured(tmp_path: Path, **config: str) -> list[str]:
    """Return what a sample printed that has read its file, its sandbox and `/etc/own`."""
    scenario = SCENARIOS / "inspect_configured.py"
    printed = run_in_framework(PINS["inspect"], tmp_path, scenario, json.dumps(config))
    read, *others, outcome = printed.splitlines()
    assert read == "0  ['6', '7', '6', '7']"
    assert outcome == "success None"
    return others


@pytest.mark.engine
def test_a_sample_can_have_a_container_of_docker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = session_image.use_session_image(monkeypatch)
    sandbox, own = run_configured(tmp_path, image=image)
    assert sandbox.startswith("<DockerSandbox ")
    assert own == ""


def test_a_sample_can_have_a_root_file_system(tmp_path: Path) -> None:
    sandbox, own = run_configured(tmp_path, root=str(make_root(tmp_path / "root")))
    assert sandbox.startswith("<Sandbox ")
    assert own == "of this root"
