"""What a block adds to make the user's next `git` run a program is removed and named."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cellblock import Policy
from tests.sandbox.test_startup_files import git, kind, open_executor, run
from tests.suite.tiers import exhaustive

__all__ = ["kind"]
pytestmark = pytest.mark.usefixtures("kept_servers")

# A configuration whose `core.fsmonitor` runs with each `git status`.
EVIL = "[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = touch $PWD/ran; false\\n"
MAKE_EVIL = f"mkdir -p {{0}} && printf '{EVIL}' > {{0}}/config"
REPOSITORY = "mkdir -p {0}/objects {0}/refs && echo ref: refs/heads/main > {0}/HEAD"
ATTEMPTS = {
    "commondir": (
        f"{MAKE_EVIL.format('x')} && cp -r .git/objects .git/refs x && echo ../x > .git/commondir",
        ".git/commondir",
        ".",
    ),
    "a nested repository": (
        f"{REPOSITORY.format('sub/.git')} && {MAKE_EVIL.format('sub/.git')}",
        "sub/.git/config",
        "sub",
    ),
    "a nested file .git": (
        f"{REPOSITORY.format('x')} && {MAKE_EVIL.format('x')} && mkdir sub "
        "&& echo 'gitdir: ../x' > sub/.git",
        "sub/.git",
        "sub",
    ),
    "a bare repository": (
        f"{REPOSITORY.format('sub')} && {MAKE_EVIL.format('sub')} "
        "&& echo 'worktree = .' >> sub/config",
        "sub/HEAD",
        "sub",
    ),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository as its owner uses it."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q")
    return folder


def status_runs_a_program(project: Path, below: str) -> bool:
    """Return True if `git status` in a folder runs the program that a block has planted."""
    subprocess.run(["git", "-C", project / below, "status"], capture_output=True, check=False)
    return bool([*project.rglob("ran")])


def test_a_block_cannot_make_git_status_run_a_program(kind: str, project: Path) -> None:
    faults = list[object]()
    with open_executor(kind, project) as executor:
        for name, (command, removed, below) in ATTEMPTS.items():
            result = run(executor, command)
            start = "Removed, because Git would obey it outside the sandbox: "
            is_named = result.stderr.startswith(start) and removed in result.stderr
            is_there = removed in result.files or (project / removed).exists()
            is_obeyed = status_runs_a_program(project, below)
            if result.exit_code != 0 or not is_named or is_there or is_obeyed:
                faults.append((name, is_obeyed, result))
            run(executor, "rm -rf x sub")
    assert faults == []


@pytest.mark.parametrize("name", exhaustive(ATTEMPTS))
def test_without_the_protection_git_status_runs_a_program(name: str, project: Path) -> None:
    command, _, below = ATTEMPTS[name]
    with open_executor("session", project, Policy(protect_startup_files=False)) as executor:
        assert run(executor, command).stderr == ""
    assert status_runs_a_program(project, below)


def test_ordinary_repositories_of_blocks_are_kept(kind: str, project: Path) -> None:
    user = "git config user.name A && git config user.email a@example.com"
    with open_executor(kind, project) as executor:
        for command in (
            f"git init -q sub && cd sub && {user} && echo 1 > a && git add a && git commit -qm one",
            "git clone -q sub copy && git clone -q --bare sub bare",
            "cd copy && git pull -q && git log -1 --format=%s",
        ):
            result = run(executor, command)
            assert (result.exit_code, result.stderr) == (0, ""), result.output
    assert git(project / "copy", "log", "--format=%s") == "one\n"


def test_a_repository_that_changes_later_is_removed(kind: str, project: Path) -> None:
    with open_executor(kind, project) as executor:
        assert run(executor, "git init -q sub; git init -q --bare bare").stderr == ""
        for place, removed in (("sub", "sub/.git/config"), ("bare", "bare/HEAD")):
            result = run(executor, f"cd {place} && git config core.fsmonitor 'touch ran'")
            assert removed in result.stderr
            assert not (project / removed).exists()
