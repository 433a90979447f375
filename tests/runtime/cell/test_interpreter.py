"""At its end, a block behaves like the interpreter. Untested Python versions cause a warning."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from cellblock import CodeBlock
from cellblock.environments.interpreter import warn_if_untested
from cellblock.runtime.cell import interpreter
from tests.executors.command_line import test_fidelity
from tests.sandbox.probes import checked_output, sandbox

ROOT = Path(__file__).parents[3]
OPEN_FILE = "f = open('x.txt', 'w')\n{between}\nf.write('kept')\n"
# Objects that refer to the script's names, so that they live until the last garbage collection.
REFERRERS = {
    "nothing": "pass",
    "a function": "def g(): pass",
    "a class": "class C:\n    def method(self): return f",
    "a closure": "def outer():\n    def inner(): return f\n    return inner\ninner = outer()",
    "a suspended generator": "def g():\n    yield f\ngenerator = g()\nnext(generator)",
    "a cycle": "cycle = [f]\ncycle.append(cycle)",
}
FINALIZERS = """
class Resource:
    def __init__(self, name):
        self.name = name
    def __del__(self):
        with open('ended.txt', 'a') as file:
            file.write(self.name)
def g(): pass
resource, held = Resource('a'), [Resource('b')]
held.append(held)
"""


def test_files_that_were_left_open_are_flushed_and_finalizers_run(tmp_path: Path) -> None:
    with sandbox(tmp_path) as executor:
        for name, between in REFERRERS.items():
            checked_output(executor, OPEN_FILE.format(between=between))
            assert (tmp_path / "x.txt").read_text() == "kept", name
            (tmp_path / "x.txt").unlink()
        checked_output(executor, FINALIZERS)
    assert sorted((tmp_path / "ended.txt").read_text()) == ["a", "b"]


def test_only_untested_versions_cause_a_warning_and_each_once() -> None:
    for version in ("3.99.1", "3.1", "4.0.0rc1"):
        message = rf"not been tested on Python {version}.*Tested versions: 3\.10, 3\.11"
        with pytest.warns(RuntimeWarning, match=message):
            warn_if_untested(version)
        warn_if_untested(version)  # a warning fails the test
    for version in interpreter.TESTED:
        warn_if_untested(f"{version}.1")


# A process of its own, because the warning filters belong to all threads of a process.
UNTESTED = """
from cellblock import CodeBlock
from cellblock.runtime.cell import interpreter
from cellblock.sync import SandboxCommandLineCodeExecutor
interpreter.TESTED = ("3.2",)
for _ in range(2):
    with SandboxCommandLineCodeExecutor(30) as executor:
        print(executor.execute_code_blocks([CodeBlock("print('out')", "python")]).check().output)
"""


def test_an_untested_version_still_runs(tmp_path: Path) -> None:
    sandbox()  # skips where there is none
    command = [sys.executable, "-W", "always::RuntimeWarning", "-c", UNTESTED]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == ["out", "out"], done.stderr
    assert done.stderr.count("RuntimeWarning: Cellblock has not been tested on") == 1


@pytest.mark.pythons
def test_blocks_behave_like_scripts_on_the_oldest_python_of_images(tmp_path: Path) -> None:
    python = _find_python(interpreter.TESTED[0])
    subprocess.run([python, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    programs = tmp_path / "env" / "bin"
    context = SimpleNamespace(env_exe=str(programs / "python"), bin_path=str(programs))
    work = tmp_path / "work"
    for name, text in test_fidelity.FILES.items():
        (work / name).parent.mkdir(exist_ok=True, parents=True)
        (work / name).write_text(text)
    faults = list[object]()
    with sandbox(work, virtual_env_context=context) as executor:
        for name, code in test_fidelity.CODES.items():
            block = test_fidelity.observable(test_fidelity.as_block(executor, code))
            (work / "tried.py").write_text(f"# filename: tried.py\n{code}")
            command = CodeBlock("exec /opt/env/bin/python -u /workspace/tried.py", "sh")
            plain = test_fidelity.observable(executor.execute_code_blocks([command]))
            if block != plain:
                faults.append((name, block, plain))
    assert faults == []


def _find_python(version: str) -> str:
    """Return the path of a Python of minor `version`; skip the test if there is none."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    of_pyenv = root.glob(f"versions/{version}.*/bin/python3")
    for python in (*of_pyenv, shutil.which(f"python{version}")):
        if python:
            tried = subprocess.run([python, "-c", ""], capture_output=True, check=False)
            if tried.returncode == 0:
                return str(python)
    pytest.skip(f"no Python {version} on the PATH or in pyenv")


def test_readme_and_package_metadata_name_the_tested_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    classifiers = "\n".join(project["classifiers"])
    named = re.findall(r"^Programming Language :: Python :: (3\.\d+)$", classifiers, re.MULTILINE)
    *others, last = interpreter.TESTED[1:]  # the first one is for code in images only
    assert named == [*others, last]
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"Python {', '.join(others)} or {last}" in readme
