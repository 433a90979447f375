"""Other frameworks, each in an environment of its own, because they conflict with each other.

The environments are in the user's cache folder, under a digest of requirements and Python. They do
not know where this checkout is: programs there find it, and its entry points, by `PYTHONPATH`.
"""

from __future__ import annotations

import asyncio
import fcntl
import functools
import os
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from xml.etree import ElementTree

from cellblock.environments.virtualenv import environment_for, python_of

ROOT = Path(__file__).parents[1]
SCENARIOS = ROOT / "tests" / "integrations" / "scenarios"
SUITES = ROOT / "tests" / "integrations" / "suites"
PINS = {
    "ag2": ("ag2==1.2.1",),
    "agent-framework": ("agent-framework-tools==1.0.0b261022",),
    "deepagents": ("deepagents==0.7.32", "langchain-tests==1.1.9"),
    "dspy": ("dspy==3.4.1",),
    "google-adk": ("google-adk==2.13.0",),
    "harbor": ("harbor==0.26.0",),
    "inspect": (
        *("inspect-ai==0.3.285", "aiodocker==0.27.0"),
        *("pytest==9.2.0", "pytest-asyncio==1.5.0"),
    ),
    "managed-agents": ("anthropic==2.14.0",),
    "mini-swe-agent": ("mini-swe-agent==2.4.6",),
    "openai-agents": ("openai-agents==0.24.0",),
    "pydantic-ai": ("pydantic-ai-slim==2.68.0", "pytest==9.2.0"),
    "smolagents": ("smolagents==1.26.0",),
    "strands": ("strands-agents==1.62.0",),
}
# Prints the pins that are not installed, and the files that are missing.
CHECK = r"""
import re, sys
from importlib.metadata import distributions, version
pins = [re.fullmatch(r"([\w-]+)(?:\[.*\])?==(.*)", pin) for pin in sys.argv[1:]]
print(*[pin[0] for pin in pins if version(pin[1]) != pin[2]])
files = [file for each in distributions() for file in each.files or ()]
print(*[file for file in files if not file.locate().exists()])
"""


@functools.cache
def framework_python(*pins: str, python: str | None = None) -> Path:
    """Return a Python with these packages and our dependencies, which is made if it is damaged.

    It is another `python` than the running one if that is given.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    packages = [*pins, *project["dependencies"]]
    environment = asyncio.run(environment_for(packages, python=python))
    with environment.with_suffix(".check").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if found := damage(environment, pins):
            sys.stderr.write(f"{environment} is made again: {found}\n")
            shutil.rmtree(environment)
            environment = asyncio.run(environment_for(packages, python=python))
            assert not damage(environment, pins)
    return python_of(environment)


def damage(environment: Path, pins: tuple[str, ...]) -> str:
    """Return what an environment lacks."""
    argv = [python_of(environment), "-I", "-c", CHECK, *pins]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    return (done.stdout + done.stderr).strip()


def import_path(folder: Path) -> str:
    """Return a `PYTHONPATH` with this checkout. `folder` gets a link to its entry points."""
    installed = Path(str(distribution("cellblock").locate_file("")))
    [metadata] = installed.glob("cellblock-*.dist-info")
    links = folder / "entry_points"
    links.mkdir(exist_ok=True)
    (links / metadata.name).unlink(missing_ok=True)
    (links / metadata.name).symlink_to(metadata)
    return os.pathsep.join([str(ROOT / "src"), str(links)])


def run_in_framework(
    pins: tuple[str, ...], folder: Path, *arguments: str | Path, given: str = ""
) -> str:
    """Run Python where `pins` are installed, in `folder`. Require success, and return its output.

    `given` is its input.

    The time limit of the test is the hang guard: it kills the process.
    """
    done = _run(pins, folder, *arguments, given=given)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_suite(pins: tuple[str, ...], folder: Path, suite: str, *options: str) -> dict[str, str]:
    """Run a file of `tests/integrations/suites`, and return the outcome of each of its tests.

    Outcomes are passed, skipped, xfailed, failed and error.
    """
    report = folder / "report.xml"
    settings = SUITES / "pytest.ini"
    argv = ("-m", "pytest", "-c", settings, f"--junitxml={report}", *options, SUITES / suite)
    done = _run(pins, folder, *argv)
    sys.stdout.write(done.stdout + done.stderr)
    return {
        case.attrib["name"]: _outcome(case) for case in ElementTree.parse(report).iter("testcase")
    }


def _outcome(case: ElementTree.Element) -> str:
    for child in case:
        if child.tag in ("failure", "error"):
            return child.tag
        if child.tag == "skipped":
            return "xfailed" if child.get("type") == "pytest.xfail" else "skipped"
    return "passed"


def _run(
    pins: tuple[str, ...], folder: Path, *arguments: str | Path, given: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [framework_python(*pins), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": import_path(folder)},
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
