"""Harbor runs a task in our sandbox: its own command, its oracle agent and its verifier."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from cellblock.sandbox.cgroups import find_cgroups
from cellblock.sandbox.probe import find_sub_ids
from tests.frameworks import PINS, SCENARIOS, framework_python, import_path
from tests.sandbox.images.small_root import make_root

pytestmark = [pytest.mark.slow, pytest.mark.pythons, pytest.mark.network, pytest.mark.timeout(300)]

FILES = {
    "task.toml": 'schema_version = "1.0"\n[environment]\n',
    "instruction.md": "Write 42 to /app/answer.\n",
    "environment/Dockerfile": "FROM scratch\n",
    "solution/solve.sh": "#!/bin/bash\nmkdir -p /app; echo $((6 * 7)) > /app/answer\n",
    "tests/test.sh": (
        "#!/bin/bash\ncat /etc/own; read answer < /app/answer\n"
        "echo $((answer == 42)) > /logs/verifier/reward.txt\n"
    ),
}
PROGRAM = "from harbor.cli.main import app; app()"
USED = r"""
1.5 300 40
['0', '99', 'given'] 0
['1000', 'given'] 0
[] 137
['of', 'this', 'root'] 137
500
5

The network is the task's, or what `harbor run` says. Not policy's.
Sandbox.__init__() got an unexpected keyword argument 'imag'
Unknown limits: cpu.
"""
KIND = "cellblock.integrations.harbor:CellblockTaskEnvironment"


def find_python() -> Path:
    """Return a Python that Harbor supports."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = [*pyenv.glob("versions/3.12.*/bin/python3"), Path("/usr/bin/python3.12")]
    if not (existing := [path for path in found if path.exists()]):
        pytest.skip("Python 3.12 is missing, which Harbor needs")
    return existing[0]


def run_trial(folder: Path, root: Path) -> dict[str, object]:
    """Run a trial of the task, and return what Harbor has saved of it."""
    for name, text in FILES.items():
        path = folder / "task" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    argv = ("-c", PROGRAM, "trial", "start", "-p", "task", "-a", "oracle", "--env", KIND)
    options = ("--environment-kwarg", f"root={root}", "--trials-dir", "trials")
    subprocess.run(
        [framework_python(*PINS["harbor"], python=str(find_python())), *argv, *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": import_path(folder)},
        check=True,
    )
    [result] = folder.glob("trials/*/result.json")
    return json.loads(result.read_text())


def test_a_task_is_solved_in_a_root_file_system_of_its_own(tmp_path: Path) -> None:
    result = run_trial(tmp_path, make_root(tmp_path / "root"))
    assert result["exception_info"] is None
    assert result["verifier_result"] == {"rewards": {"reward": 1.0}}
    [output] = tmp_path.glob("trials/*/verifier/test-stdout.txt")
    assert output.read_text() == "of this root\n"


def test_root_is_root_and_the_resources_of_a_task_are_limits(tmp_path: Path) -> None:
    if isinstance(reason := find_sub_ids(), str):
        pytest.skip(f"one user: {reason}")
    if not find_cgroups().processors:
        pytest.skip("no control groups, which limit processors")
    done = subprocess.run(
        [
            framework_python(*PINS["harbor"], python=str(find_python())),
            *(SCENARIOS / "harbor_use.py", tmp_path, make_root(tmp_path / "root")),
        ],
        env={**os.environ, "PYTHONPATH": import_path(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert done.stdout == USED.removeprefix("\n")


def test_a_missing_root_is_an_error_of_the_trial(tmp_path: Path) -> None:
    error = run_trial(tmp_path, tmp_path / "none")["exception_info"]
    assert isinstance(error, dict)
    assert error["exception_type"] == "ImageUnusable"
    assert str(tmp_path / "none") in error["exception_message"]
