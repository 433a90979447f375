"""deepagents works in our sandbox: LangChain's public suite, and its own agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks import PINS, SCENARIOS, run_in_framework, run_suite

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.timeout(600)]

DEEPAGENTS_06 = ("deepagents==0.6.12", *PINS["deepagents"][1:])
# The suite expects relative paths of `glob`, and that `write` refuses an existing file.
FAIL_WITH_07 = {
    "test_glob",
    "test_glob_basic_pattern",
    "test_glob_hidden_files_explicitly",
    "test_glob_with_character_class",
    "test_glob_with_directories",
    "test_glob_with_question_mark",
    "test_write_existing_file_fails",
}


@pytest.mark.parametrize(
    ("pins", "failing"),
    [
        pytest.param(DEEPAGENTS_06, set[str](), id="0.6"),
        pytest.param(PINS["deepagents"], FAIL_WITH_07, id="0.7"),
    ],
)
def test_the_public_suite_passes(pins: tuple[str, ...], failing: set[str], tmp_path: Path) -> None:
    outcomes = run_suite(pins, tmp_path, "langchain_suite.py", "--asyncio-mode=auto")
    assert len(outcomes) == 86
    others = {name: outcome for name, outcome in outcomes.items() if outcome != "passed"}
    assert others == dict.fromkeys(failing, "xfailed")


USED = """\
True
ExecuteResponse(output='out\\nerr\\n', exit_code=137, truncated=False)
ExecuteResponse(output='partial\\n', exit_code=124, truncated=False)
ExecuteResponse(output='late\\n', exit_code=0, truncated=False)
['invalid_path', None]
[b'A', 'file_not_found', 'is_directory', 'invalid_path', 'invalid_path']
"""


def test_what_happens_in_the_sandbox_is_said_in_terms_of_deepagents(tmp_path: Path) -> None:
    printed = run_in_framework(
        PINS["deepagents"], tmp_path, "-W", "error", SCENARIOS / "deepagents_use.py"
    )
    used, gone, refused = printed.rsplit("\n", 3)[:3]
    assert used + "\n" == USED
    assert gone.startswith("BoxGone ")
    assert refused == "ValueError sandbox must be one of cellblock.sync, such as cel"


def test_an_agent_corrects_its_program_in_the_sandbox(tmp_path: Path) -> None:
    printed = run_in_framework(
        PINS["deepagents"], tmp_path, "-W", "error", SCENARIOS / "deepagents_agent.py"
    )
    outputs, answer = printed.splitlines()
    assert outputs == "['Updated', '14', 'Successfully', '13', \"['/tmp/task/add.py',\"]"
    assert answer == "The sum is 13. ['add.py', 'numbers']"
