"""Startup files in a work folder: what other programs run later as the user who owns it.

Those that exist are read-only to blocks, and new ones are named in the result.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from cellblock import CodeBlock, CodeResult, Policy
from cellblock.executors.workspace import folder_scan
from cellblock.runtime.messages import MountSpec
from cellblock.sandbox.setup.mounts import open_trees
from cellblock.sync import SandboxSessionCodeExecutor, SyncCodeExecutor
from tests.sandbox.probes import MARK, checked_output, sandbox

pytestmark = [pytest.mark.depends_on_user, pytest.mark.usefixtures("kept_servers")]

UNPROTECTED = Policy(protect_startup_files=False)
HOOK = ".git/hooks/pre-commit"
EXISTING = [
    *(f".{name}" for name in ("bash_login", "bash_logout", "bash_profile", "bashrc", "cshrc")),
    *(f".{name}" for name in ("envrc", "gitconfig", "kshrc", "login", "logout", "profile")),
    *(f".{name}" for name in ("zlogin", "zprofile", "zshenv", "zshrc")),
    ".git/config",
    HOOK,
    ".git/modules/sub/config",
    ".gitmodules",
    *(f".{name}" for name in ("dir-locals.el", "exrc", "gdbinit", "lldbinit", "mcp.json")),
    *(f".{name}" for name in ("mise.toml", "npmrc", "nvim.lua", "yarnrc", "yarnrc.yml")),
    *(f".{name}/settings" for name in ("cargo", "claude", "codex", "cursor", "devcontainer")),
    *(f".{name}/settings" for name in ("gemini", "husky", "idea", "jj", "zed")),
    ".hg/hgrc",
    ".vscode/tasks.json",
    "any.code-workspace",
]
NEW = ".claude/settings.json .hg/hgrc .mcp.json .vscode/settings.json a.code-workspace".split()
NEW.append("AGENTS.md")  # instructions
REMOVED = [".git/commondir", ".git/config.worktree", ".git/hooks/post-commit"]
# Each tries to replace a startup file in another way, and says whether that worked.
ATTEMPTS = [
    "printf x >> {path}",
    "rm {path} && printf x > {path}",
    "printf x > new && mv -f new {path}",
    "ln -sf /etc/passwd {path}",
    "chmod 777 {path}",
]
APPEND = """
for path in {paths}:
    try:
        open(path, "a").write("y")
    except OSError as error:
        print(error.strerror)
"""
MOVED = [".git/modules/sub", ".git/hooks", ".vscode", ".git", ".hg", ".claude"]


def git(folder: Path, *arguments: str) -> str:
    """Run git outside the sandbox, without the configuration of the machine."""
    environment = {**os.environ, "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with startup files of every kind."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, "config", "user.email", "a@example.com")
    git(folder, "config", "user.name", "A")
    for path in EXISTING:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        if path != ".git/config":
            (folder / path).write_text("")
    (folder / HOOK).chmod(0o755)
    return folder


def run(executor: SyncCodeExecutor, code: str, language: str = "sh") -> CodeResult:
    return executor.execute_code_blocks([CodeBlock(code, language)])


def succeeding(executor: SyncCodeExecutor, commands: Sequence[str]) -> list[str]:
    """Run commands in one block, and return those that succeeded."""
    lines = [f"{{ {each}; }} 2> /dev/null && echo {number}" for number, each in enumerate(commands)]
    output = run(executor, "\n".join([*lines, f"echo {MARK}"])).output
    assert MARK in output
    return [commands[int(number)] for number in output.split() if number != MARK]


def contents(folder: Path) -> dict[str, str]:
    return {path: (folder / path).read_text() for path in EXISTING}


@pytest.fixture(params=["command line", "session"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def open_executor(kind: str, folder: Path, policy: Policy | None = None) -> SyncCodeExecutor:
    executor = sandbox(folder, policy=policy)  # skips the test without a sandbox
    if kind == "command line":
        return executor
    return SandboxSessionCodeExecutor(30, folder, policy=policy)


def test_blocks_cannot_change_startup_files_that_exist(kind: str, project: Path) -> None:
    before = contents(project)
    moves = [f"mv {path} moved{number}" for number, path in enumerate(MOVED)]
    attempts = [attempt.format(path=path) for path in EXISTING for attempt in ATTEMPTS] + moves
    with open_executor(kind, project) as executor:
        assert succeeding(executor, attempts) == []
        result = run(executor, APPEND.format(paths=EXISTING), "python")
        assert result.output == "Read-only file system\n" * len(EXISTING)
        assert not result.startup_files
    assert contents(project) == before
    with open_executor(kind, project, UNPROTECTED) as executor:
        attempts = [ATTEMPTS[0].format(path=path) for path in EXISTING]
        assert succeeding(executor, attempts) == attempts
        result = run(executor, APPEND.format(paths=EXISTING), "python")
        assert (result.output, set(EXISTING) - {*result.startup_files}) == ("", set())
        assert succeeding(executor, moves) == moves


def test_a_block_with_the_name_of_a_startup_file_is_refused(kind: str, project: Path) -> None:
    (project / "link").symlink_to(".git/hooks")
    names = [*EXISTING, ".git/hooks/post-commit", "link/pre-commit"]
    with open_executor(kind, project) as executor:
        for name in names:
            for language in ("python", "sh", "yaml"):
                result = run(executor, f"# filename: {name}\n", language)
                assert result.exit_code == 1
                assert "is read-only, because other programs run it" in result.output
    assert (project / HOOK).read_text() == ""
    with open_executor(kind, project, UNPROTECTED) as executor:
        result = run(executor, f"# filename: {HOOK}\nprint(1)", "python")
        assert (result.exit_code, result.startup_files) == (0, [HOOK])


def test_git_works_in_a_protected_repository(kind: str, project: Path) -> None:
    with open_executor(kind, project) as executor:
        checked_output(executor, "echo 1 > a && git add a && git commit -qm one", "sh")
        checked_output(
            executor, "git checkout -qb other && echo 2 > a && git commit -qam two", "sh"
        )
        checked_output(executor, "git stash list && git reset -q --hard HEAD^ && git gc -q", "sh")
        result = run(executor, "git commit -q --allow-empty -m three")
        assert (result.output, result.startup_files) == ("", [])
    assert git(project, "log", "--format=%s").split() == ["three", "one"]


def test_new_startup_files_are_named_or_removed_if_git_obeys_them(
    kind: str, tmp_path: Path
) -> None:
    faults = list[object]()
    with open_executor(kind, tmp_path) as executor:
        for made in [f"{above}{path}" for path in (*NEW, *REMOVED) for above in ("", "sub/")]:
            result = run(executor, f"mkdir -p $(dirname {made}) && echo x > {made}")
            if made.removeprefix("sub/") in NEW:
                is_right = result.startup_files == [made] and made in result.files
            else:
                is_said = result.stderr.rstrip().endswith(f": {made}.")
                is_right = is_said and not result.startup_files and not (tmp_path / made).exists()
            if not is_right:
                faults.append((made, result))
        assert run(executor, "echo x > ordinary").startup_files == []
        for path in NEW:  # not protected, since a block has made it
            result = run(executor, f"open({path!r}, 'a').write('y')", "python")
            if result.startup_files != [path]:
                faults.append((path, result))
    assert faults == []


def test_a_folder_that_is_renamed_to_one_of_startup_files_is_named(
    kind: str, tmp_path: Path
) -> None:
    (tmp_path / "prepared" / "hooks").mkdir(parents=True)
    (tmp_path / "prepared" / "hooks" / "pre-commit").write_text("")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "tasks.json").write_text("")
    with open_executor(kind, tmp_path) as executor:
        assert HOOK in run(executor, "mv prepared .git").stderr
        assert run(executor, "mv tasks .vscode").startup_files == [".vscode/tasks.json"]
        assert run(executor, "ln -s /tmp/x .envrc").startup_files == [".envrc"]


def test_a_saved_block_with_the_name_of_a_new_startup_file_is_named(tmp_path: Path) -> None:
    with sandbox(tmp_path, execution_policies={"sh": "save"}) as executor:
        assert run(executor, "# filename: .envrc\nx").startup_files == [".envrc"]
        assert run(executor, "print(1)", "python").startup_files == []


def test_many_files_do_not_hide_a_new_startup_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_scan, "_MAX_COST", 2_000)
    (tmp_path / "many").mkdir()
    for number in range(2_100):  # hidden, so that each is only counted
        (tmp_path / "many" / f".{number}").touch()
    with sandbox(tmp_path) as executor:
        assert run(executor, "echo x > .envrc").startup_files == [".envrc"]


def test_restoring_a_checkpoint_keeps_protected_files(project: Path) -> None:
    with open_executor("session", project) as executor:
        assert isinstance(executor, SandboxSessionCodeExecutor)
        run(executor, "echo 1 > a && git add a && git commit -qm one")
        checkpoint = executor.checkpoint()
        run(executor, "echo 2 > a && git commit -qam two && echo x > .new")
        (project / ".vscode" / "tasks.json").write_text("changed by the user")
        executor.restore(checkpoint)
        assert (project / ".vscode" / "tasks.json").read_text() == "changed by the user"
        assert not (project / ".new").exists()
        assert git(project, "log", "--format=%s").split() == ["one"]
        for path in EXISTING:  # still protected
            assert "Read-only" in run(executor, f"open({path!r}, 'a')", "python").output
        checked_output(executor, "echo 3 > a && git commit -qam three", "sh")
        (branch,) = executor.fork()
        with branch:
            checked_output(branch, f"open({HOOK!r}, 'a').write('x')")  # of its own copy
    assert (project / HOOK).read_text() == ""


def test_a_link_in_the_work_folder_is_not_followed_to_the_machine(
    kind: str, tmp_path: Path
) -> None:
    outside, work = tmp_path / "outside", tmp_path / "work"
    (outside / "hooks").mkdir(parents=True)
    (outside / "config").write_text(MARK)
    work.mkdir()
    (work / ".git").symlink_to(outside)
    (work / ".vscode").symlink_to(outside)
    with open_executor(kind, work) as executor:
        assert MARK not in run(executor, "cat .git/config .vscode/config").output
        assert run(executor, "rm .vscode; mkdir .vscode; echo x > .vscode/x").startup_files == [
            ".vscode/x"
        ]


def test_a_git_file_that_names_the_repository_is_read_only(kind: str, tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: ../other\n")
    with open_executor(kind, tmp_path) as executor:
        assert succeeding(executor, ["echo 'gitdir: evil' > .git", "rm .git"]) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can clone mounts outside a sandbox")
def test_a_path_that_became_a_link_is_not_mounted(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "config").write_text("")
    (tmp_path / "work" / "sub").mkdir(parents=True)
    for link in ("link", "sub/link"):
        (tmp_path / "work" / link).symlink_to(tmp_path / "outside")
    mount = MountSpec(str(tmp_path / "work"), "/workspace/x")
    for tree in open_trees([mount._replace(below="sub")], None):
        os.close(tree.descriptor)
    for below in ("link", "link/config", "sub/link"):
        with pytest.raises(OSError, match=r"symbolic link|Not a directory"):
            open_trees([mount._replace(below=below)], None)
