"""Agents of Pydantic AI work in our sandbox: its public suite, and its own agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks import PINS, SCENARIOS, run_in_framework, run_suite

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.timeout(300)]


def test_the_public_suite_passes(tmp_path: Path) -> None:
    outcomes = run_suite(PINS["pydantic-ai"], tmp_path, "pydantic_ai_suite.py")
    assert len(outcomes) == 40
    assert {name: outcome for name, outcome in outcomes.items() if outcome != "passed"} == {}


USED = """\
126
WorkspaceTimeoutError 4
WorkspaceTimeoutError 1
WorkspaceOutputLimitError 10485760
WorkspaceTimeoutError 0
"""


def test_what_happens_in_the_sandbox_is_said_in_terms_of_pydantic_ai(tmp_path: Path) -> None:
    printed = run_in_framework(
        PINS["pydantic-ai"], tmp_path, "-W", "error", SCENARIOS / "pydantic_ai_use.py"
    )
    used, _closed, unknown, refused = printed.rsplit("\n", 4)[:4]
    assert used + "\n" == USED
    assert unknown.startswith("This process has no sandbox for WorkspaceRef(")
    assert refused == "sandbox must be one of cellblock, such as"[:40]


def test_an_agent_corrects_its_program_in_the_sandbox(tmp_path: Path) -> None:
    printed = run_in_framework(
        PINS["pydantic-ai"], tmp_path, "-W", "error", SCENARIOS / "pydantic_ai_agent.py"
    )
    outputs, answer = printed.splitlines()
    assert outputs == "['edited', \"'str'\", 'edited', '13']"
    assert answer == "The sum is 13. b'print(sum(map(int, open(0))))'"
