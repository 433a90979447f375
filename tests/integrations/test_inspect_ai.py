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


def run_configured(tmp_path: Path, **config: object) -> list[str]:
    """Return what a sample printed that has read its file, its sandboxes and `/etc/own`."""
    scenario = SCENARIOS / "inspect_configured.py"
    printed = run_in_framework(PINS["inspect"], tmp_path, scenario, json.dumps(config))
    read, *others, outcome, is_logged = printed.splitlines()
    assert read == "0  ['6', '7', '6', '7']"
    assert (outcome, is_logged) == ("success None", "True")
    return others


@pytest.mark.engine
def test_a_sample_can_have_a_container_of_docker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = session_image.use_session_image(monkeypatch)
    sandbox, own, connected = run_configured(tmp_path, image=image)
    assert sandbox.startswith("<DockerSandbox ")
    assert own == ""
    assert connected.startswith("default docker ")  # whose command needs a terminal


def test_a_sample_can_have_a_root_file_system(tmp_path: Path) -> None:
    sandbox, own = run_configured(tmp_path, root=str(make_root(tmp_path / "root")))
    assert sandbox.startswith("<Sandbox ")
    assert own == "of this root"


def test_a_sample_can_have_several_sandboxes_with_all_parameters(tmp_path: Path) -> None:
    for name in ("given", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "given" / "file").write_text("given")
    policy = {"environment": {"A": "5"}, "read_only": [[str(tmp_path / "given"), "/given"]]}
    limits = {"open_files": 99}
    work_dir = str(tmp_path / "work")
    second = {"work_dir": work_dir, "policy": policy, "limits": limits, "kept": True}
    # It is this machine's: the sandbox sees it as the work folder.
    (tmp_path / "work" / "given").symlink_to("/given")
    first, _, other, connected = run_configured(tmp_path, sandboxes={"other": second}, timeout=20)
    assert first.startswith("<Sandbox ")
    assert other.startswith("other ['/workspace', '99', '5', 'given'] <Sandbox ")
    assert connected == "other cellblock [b'5', b'/workspace']"


def test_a_wrong_configuration_is_refused_when_it_is_made(tmp_path: Path) -> None:
    program = """
from cellblock.integrations.inspect_ai import CellblockConfig
for wrong in (
    {"imag": "x"},
    {"image": "x", "root": "y"},
    {"policy": {"network": "all"}},
    {"sandboxes": {"default": {}}},
    {"sandboxes": {"a": {"sandboxes": {"b": {}}}}},
):
    try: CellblockConfig(**wrong)
    except ValueError as error: print(str(error).splitlines()[-2].strip().partition(" [")[0])
"""
    assert run_in_framework(PINS["inspect"], tmp_path, "-c", program).splitlines() == [
        "Value error, Sandbox.__init__() got an unexpected keyword argument 'imag'. "
        "See the parameters of cellblock.Sandbox.",
        "Value error, Unknown arguments: root. See the parameters of cellblock.DockerSandbox.",
        "Value error, Policy.network must be 'none' or 'host', not 'all'.",
        "Value error, The sandbox `default` is what the other fields say.",
        "Value error, The sandbox 'a' cannot have sandboxes of its own.",
    ]
