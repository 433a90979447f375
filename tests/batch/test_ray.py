"""Batches on a Ray cluster of three nodes on loopback: the same verdicts as on one machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cellblock import Policy, SandboxCommandLineCodeExecutor
from cellblock.batch import Program, run_many
from tests.batch.published import download_human_eval, mixed_solutions
from tests.executors.session.live_session import skip_without_sandbox
from tests.frameworks import run_in_framework

RAY = ("ray==2.60.0",)
SCENARIO = Path(__file__).parent / "scenarios" / "ray_batch.py"


@pytest.mark.pythons
@pytest.mark.network
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_cluster_gives_the_same_verdicts_even_if_a_node_is_lost(tmp_path: Path) -> None:
    skip_without_sandbox()
    programs = mixed_solutions(download_human_eval(tmp_path))
    file = tmp_path / "programs.jsonl"
    file.write_text("".join(f"{program.to_json()}\n" for program in programs))
    found = json.loads(run_in_framework(RAY, tmp_path, SCENARIO, file).splitlines()[-1])
    expected = found["on this machine"]
    assert [outcome == "passed" for _, outcome in expected] == [
        number % 10 > 0 for number in range(164)
    ]
    assert found["with a lost node"] == expected
    assert not found["is connected"]
    status, notes = found["command"]
    assert status == 1, notes
    assert found["resumed by the command"] == expected
    note, outcome = found["waited"]
    assert (outcome, "needs a whole CPU of a node, and 0.5 CPUs" in note) == ("passed", True), note
    assert "No Ray cluster can be reached at '127.0.0.1:1'" in found["no cluster"]


def test_without_ray_the_error_names_the_extra() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'cellblock\[ray\]'"):
        run_many([Program(id="1", code="")], cluster="auto")


def test_programs_get_no_network_on_a_cluster_that_accepts_everybody() -> None:
    executor = SandboxCommandLineCodeExecutor(policy=Policy(network="host"))
    with pytest.raises(ValueError, match="RAY_AUTH_MODE=token"):
        run_many([Program(id="1", code="")], executor=executor, cluster="auto")
