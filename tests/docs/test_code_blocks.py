"""Every code block of the README and the documentation runs, and prints what the page shows.

python    All blocks of a page run in order in one namespace. `await` works outside functions, as in
          `python -m asyncio`. Comments that begin with `#>` are the whole output of their block.
sh        The block runs and succeeds. A `text` block right below it is its output.
console   Commands for a person: they are not run, but what they name exists.
text      Output, or a drawing: not run. Nor is yaml.

In outputs, `...` stands for any text.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cellblock.sandbox.probe import unavailable_reason
from tests.command_server import run_command
from tests.containers import docker_engine
from tests.docs.markdown_pages import (
    INTEGRATIONS,
    PAGES,
    ROOT,
    PageBlock,
    blocks,
    matches,
    page_name,
)
from tests.executors.jupyter import kernels
from tests.executors.session import session_image
from tests.suite.tiers import exhaustive

LANGUAGES = {"python", "sh", "console", "text", "yaml"}
# Programs of console blocks, besides ours.
PROGRAMS = set("cd curl docker git harbor kubectl opentelemetry-instrument pip sqlite3".split())
MODULES = ("numpy", "pandas", "matplotlib", "pyarrow")
# The mark of a page whose code has a pattern.
NEEDS = {"network": r"packages=|--package", "engine": "Docker", "kernel": "Jupyter"}
# The pages of the default tier, and those that start servers or run many commands.
CENTRAL = {"README", "executors", "index", "sandbox", "sessions"}
SLOW = {"azure", "chat-command", "compat", "jupyter", "mcp", "serve"}
IMAGE, IPYTHON_IMAGE = "python:3-slim", "ipython:latest"

pytestmark = pytest.mark.timeout(300)


def code_of(page: Path) -> str:
    return "\n".join(block.code for block in blocks(page) if block.language in ("python", "sh"))


def is_docker_page(page: Path) -> bool:
    return "Docker" in code_of(page)


def marks_of(page: Path) -> list[pytest.MarkDecorator]:
    names = [name for name, pattern in NEEDS.items() if re.search(pattern, code_of(page))]
    names += ["slow"] * (page.stem in SLOW)
    return [getattr(pytest.mark, name) for name in names]


def runnable_pages() -> list[object]:
    """Return the pages with code to run. Those with "docker" in their name share one process.

    tests/integrations runs those of other frameworks.
    """
    pages = [page for page in PAGES if code_of(page) and page not in INTEGRATIONS]
    ids = {page: page_name(page) + " docker" * is_docker_page(page) for page in pages}
    cases = [pytest.param(page, id=ids[page], marks=marks_of(page)) for page in pages]
    return exhaustive(cases, keep=lambda case: case.values[0].stem in CENTRAL)


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return what replaces the images that pages name. Tests pull nothing from a registry."""
    python = docker_engine.use_shared_engine(monkeypatch, "python")
    return {IMAGE: python, IPYTHON_IMAGE: session_image.use_session_image(monkeypatch)}


class PageRun:
    """A folder in which the blocks of a page run, with the programs and files that they use."""

    def __init__(self, page: Path, folder: Path, replacements: dict[str, str]) -> None:
        self.page, self.replacements = page, replacements
        self.work_dir = folder / "clone"
        shutil.copytree(ROOT / "examples", self.work_dir / "examples")
        programs = folder / "bin"
        programs.mkdir()
        for name, module in (("cellblock", "-m cellblock"), ("python", "")):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec {sys.executable} {module} "$@"\n')
            program.chmod(0o755)
        search = os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)])
        modules = os.pathsep.join(filter(None, [str(ROOT / "src"), *sys.path]))
        self.environment = {**os.environ, "PATH": search, "PYTHONPATH": modules}

    def code(self, block: PageBlock) -> str:
        """Return the code of `block` with the images of the tests."""
        code = block.code
        for name, image in self.replacements.items():
            code = code.replace(name, image)
        return code

    def run_python(self, found: list[PageBlock]) -> list[str]:
        """Run the Python blocks; return what each printed."""
        argv = [sys.executable, str(Path(__file__).with_name("run_page.py")), str(self.page)]
        given = json.dumps([(block.line, self.code(block)) for block in found])
        return json.loads(self._run(argv, given))

    def run_shell(self, block: PageBlock) -> str:
        """Run an `sh` block; return its output."""
        return self._run(["sh", "-e", "-c", self.code(block)], "")

    def _run(self, argv: list[str], given: str) -> str:
        folder, environment = self.work_dir, self.environment
        done = subprocess.run(
            argv, cwd=folder, env=environment, input=given, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.mark.docs
@pytest.mark.parametrize("page", runnable_pages())
def test_code_of_a_page_does_what_the_page_shows(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    if reason := unavailable_reason():
        pytest.skip(f"no full sandbox here: {reason}")
    for module in MODULES:
        if module in code_of(page):
            pytest.importorskip(module, reason=f"{module} is missing: the extra `bench` has it")
    kernels.install_kernel_specs(monkeypatch, tmp_path / "jupyter")
    replacements: dict[str, str] = {}
    if is_docker_page(page):
        replacements = request.getfixturevalue("images")
    run = PageRun(page, tmp_path, replacements)
    python = [block for block in blocks(page) if block.language == "python"]
    for block, output in zip(python, run.run_python(python), strict=True):
        where = f"{page_name(page)}:{block.line}"
        assert matches(output, block.shown_output), f"{where} printed:\n{output}"
    for block in blocks(page):
        if block.language == "sh":
            output = run.run_shell(block)
            where = f"{page_name(page)}:{block.line}"
            assert block.output is None or matches(output, block.output), f"{where}:\n{output}"


def test_every_block_has_a_language_that_is_tested() -> None:
    unknown = [
        f"{page_name(page)}:{block.line}: {block.language or 'none'}"
        for page in PAGES
        for block in blocks(page)
        if block.language not in LANGUAGES
    ]
    assert unknown == []


def missing(command: str) -> str | None:
    """Return what `command` of a console block names and does not exist."""
    words = command.partition("#")[0].split()
    program, arguments = words[0], words[1:]
    if program.startswith("./"):
        if not os.access(ROOT / program, os.X_OK):
            return program
    elif program == "cellblock":
        if not arguments[0].startswith("-") and arguments[0] not in command_names():
            return f"cellblock {arguments[0]}"
    elif program in ("python", "python3"):
        if arguments[0] == "-m" and importlib.util.find_spec(arguments[1]) is None:
            return arguments[1]
    elif program not in PROGRAMS:
        return program
    folders = ("examples/", "tests/", "docs/")
    paths = [word for word in arguments if word.startswith(folders)]
    return next((path for path in paths if not (ROOT / path).exists()), None)


@functools.cache
def command_names() -> set[str]:
    help_text = run_command("--help").stdout
    return set(re.findall(r"^  (\w+) ", help_text.partition("Commands:")[2], re.MULTILINE))


def test_commands_for_a_person_name_what_exists() -> None:
    commands = [
        (page_name(page), line.removeprefix("$ "))
        for page in PAGES
        for block in blocks(page)
        if block.language == "console"
        for line in block.code.splitlines()
        if line.startswith("$ ")
    ]
    found = [(page, missing(command)) for page, command in commands]
    assert [(page, name) for page, name in found if name] == []


def test_a_wrong_output_and_a_missing_program_are_noticed(tmp_path: Path) -> None:
    assert matches("a 5 b\n", "a ... b")
    assert not matches("a 5 c\n", "a ... b")
    assert not matches("printed, but not shown\n", "")
    assert missing("./scripts/tset") == "./scripts/tset"
    assert missing("cellblock rnu x") == "cellblock rnu"
    assert missing("python -m cellblok") == "cellblok"
    assert missing("./scripts/run examples/gone.md") == "examples/gone.md"
    run = PageRun(tmp_path / "page.md", tmp_path, {})
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run.run_python([PageBlock("python", "1 / 0", 1, None)])
