"""After a cancel has returned, no command runs and no function is called, with every adapter.

And the time limit of a sandbox holds where the framework names none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cellblock.sandbox.probe import unavailable_reason
from tests.autogen import AUTOGEN
from tests.frameworks import PINS, ROOT, SCENARIOS, framework_python, import_path
from tests.integrations.test_harbor import find_python
from tests.sandbox.images.small_root import make_root
from tests.suite.tiers import exhaustive

# The adapter, or the face of a box, and the framework that it needs.
ADAPTERS = {
    **dict.fromkeys(["box", "box-stream", "box-shell", "box-code"]),
    **{name: name for name in PINS},
    "agent-framework-code": "agent-framework",
    "autogen": "autogen",
    "google-adk-code": "google-adk",
    "openai-agents-shell": "openai-agents",
}
MAKE_THEIR_SANDBOXES = {"harbor", "inspect"}  # without a time limit
MARKS = [pytest.mark.slow, pytest.mark.pythons, pytest.mark.network, pytest.mark.timeout(300)]
CASES = exhaustive(
    [pytest.param(name, marks=MARKS if ADAPTERS[name] else ()) for name in ADAPTERS],
    keep=lambda case: case.values[0] == "box" or pytest.mark.slow in case.marks,
)


def python_of(adapter: str) -> Path:
    match ADAPTERS[adapter]:
        case None:
            return Path(sys.executable)
        case "autogen":
            return framework_python(*AUTOGEN)
        case "harbor":
            return framework_python(*PINS["harbor"], python=str(find_python()))
        case framework:
            return framework_python(*PINS[framework])


def outcome(adapter: str, case: str, folder: Path) -> dict[str, object]:
    if reason := unavailable_reason():
        pytest.skip(f"no full sandbox here: {reason}")
    root = make_root(folder / "root") if adapter == "harbor" else folder
    done = subprocess.run(
        [python_of(adapter), SCENARIOS / "stopping.py", adapter, case, root],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": import_path(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("adapter", CASES)
def test_after_a_cancel_no_command_runs_and_no_function_is_called(
    adapter: str, tmp_path: Path
) -> None:
    assert outcome(adapter, "cancel", tmp_path) == {"processes": 0, "bytes": 0, "calls": 0}


@pytest.mark.parametrize(
    "adapter", [case for case in CASES if case.values[0] not in MAKE_THEIR_SANDBOXES]
)
def test_the_time_limit_of_a_sandbox_holds_where_the_framework_names_none(
    adapter: str, tmp_path: Path
) -> None:
    assert outcome(adapter, "limit", tmp_path) == {"begun": True, "completed": False}


def test_every_adapter_is_tested() -> None:
    helpers = {"__init__", "box_argument", "host_functions", "plain_values", "stopping"}
    modules = {path.stem for path in (ROOT / "src/cellblock/integrations").glob("*.py")} - helpers
    others = {"anthropic_worker": "managed-agents", "inspect_ai": "inspect"}
    assert {others.get(name, name.replace("_", "-")) for name in modules} <= ADAPTERS.keys()
