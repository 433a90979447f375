"""A work folder of root whose filesystem has no ID-mapped mounts gets its owner back after use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock import CodeBlock, FunctionError, FunctionWithRequirements
from cellblock.sandbox.setup.namespaces import OUTER_USERS, can_use_outer_users
from cellblock.sync import SandboxCommandLineCodeExecutor, SandboxSessionCodeExecutor
from tests.sandbox.probes import checked_output, output_of

pytestmark = pytest.mark.depends_on_user

OTHER_USER = 12345
WRITE = (
    "import os; open('file', 'a').write('!'); os.makedirs('deep/er', exist_ok=True); "
    "open('deep/er/made', 'w')"
)
NAMED = ("# filename: named.py\nprint('first')", "# filename: below/named.py\nprint('second')")
CHANGE = "for name in ('named.py', 'below/named.py', 'below/new'): open(name, 'a').write('#')"
KILLED = """
import os, signal, sys
from cellblock import CodeBlock
from cellblock.sync import SandboxCommandLineCodeExecutor
with SandboxCommandLineCodeExecutor(work_dir=sys.argv[1]) as executor:
    executor.execute_code_blocks([CodeBlock("open('killed', 'w')", "python")]).check()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder with a file of root, a file of another user, and a link out of it."""
    if (
        not can_use_outer_users()
        or subprocess.run(
            ["mount", "-t", "ramfs", "ramfs", tmp_path], capture_output=True
        ).returncode
        != 0
    ):
        pytest.skip("only root leases folders and can mount a filesystem without ID mapping")
    try:
        work = tmp_path / "work"
        work.mkdir()
        (work / "file").write_text("")
        (work / "other").write_text("")
        os.chown(work / "other", OTHER_USER, OTHER_USER)
        (work / "link").symlink_to("/etc/hostname")
        yield work
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def owners(folder: Path) -> set[int]:
    """Return the owners of `folder` and its contents, except for the file of another user."""
    found = {path.lstat().st_uid for path in (folder, *folder.rglob("*")) if path.name != "other"}
    assert (folder / "other").stat().st_uid == OTHER_USER
    assert os.stat("/etc/hostname").st_uid == 0
    return found


@pytest.mark.parametrize("kind", [SandboxCommandLineCodeExecutor, SandboxSessionCodeExecutor])
def test_a_folder_is_returned_with_all_files_that_blocks_created(kind: type, folder: Path) -> None:
    with kind(work_dir=folder) as executor:
        checked_output(executor, WRITE)
        assert folder.stat().st_uid in OUTER_USERS, (
            "this filesystem supports ID-mapped mounts: the test needs another one"
        )
        executor.restart()
        checked_output(executor, WRITE)
    assert owners(folder) == {0}
    assert (folder / "file").read_text() == "!!"


@pytest.mark.parametrize("kind", [SandboxCommandLineCodeExecutor, SandboxSessionCodeExecutor])
def test_startup_files_in_it_are_read_only(kind: type, folder: Path) -> None:
    for name in (".git/hooks", ".git/objects", ".vscode"):
        (folder / name).mkdir(parents=True)
    (folder / ".git" / "config").write_text("[core]\n")
    (folder / ".bashrc").write_text("")
    with kind(work_dir=folder) as executor:
        for path in (".git/hooks/x", ".git/config", ".vscode/x", ".bashrc"):
            assert "Read-only file system" in output_of(executor, f"open({path!r}, 'a')")
            assert "Read-only file system" in output_of(executor, f": >> {path}", "sh")
        assert not executor.execute_code_blocks([CodeBlock(WRITE, "python")]).startup_files
        checked_output(executor, "echo x > .git/objects/made; echo x > .git/index", "sh")
    assert owners(folder) == {0}


def test_it_stays_leased_until_the_last_executor_stops(folder: Path) -> None:
    with SandboxCommandLineCodeExecutor(work_dir=folder) as first:
        with SandboxCommandLineCodeExecutor(work_dir=folder) as second:
            checked_output(second, WRITE)
        checked_output(first, WRITE)
        assert folder.stat().st_uid in OUTER_USERS
    assert owners(folder) == {0}


def test_it_is_returned_if_the_executor_fails_to_start(folder: Path) -> None:
    function = FunctionWithRequirements.from_str(
        "def one() -> int:\n    return 1", global_imports=["not_there"]
    )
    with (
        pytest.raises(FunctionError),
        SandboxCommandLineCodeExecutor(work_dir=folder, functions=[function]),
    ):
        pass
    assert owners(folder) == {0}


def test_the_next_executor_returns_a_folder_that_a_killed_process_left(folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    killed = subprocess.run([sys.executable, "-c", KILLED, folder], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert owners(folder) - {0}
    (folder / "of root").write_text("")
    with SandboxCommandLineCodeExecutor(work_dir=folder) as executor:
        checked_output(executor, f"{WRITE}; open('killed', 'a'); open('of root', 'a')")
    assert owners(folder) == {0}


def test_later_blocks_can_change_named_files(folder: Path) -> None:
    with SandboxCommandLineCodeExecutor(work_dir=folder) as executor:
        for code in (*NAMED, CHANGE):
            checked_output(executor, code)
    assert owners(folder) == {0}
    assert (folder / "below" / "named.py").read_text().endswith("#")


@pytest.mark.skipif(
    not can_use_outer_users(), reason="only root can use the folder of another user"
)
def test_later_blocks_can_change_named_files_in_another_users_folder(tmp_path: Path) -> None:
    os.chown(tmp_path, OTHER_USER, OTHER_USER)
    with SandboxCommandLineCodeExecutor(work_dir=tmp_path) as executor:
        for code in (*NAMED, CHANGE):
            checked_output(executor, code)
    assert {path.stat().st_uid for path in tmp_path.rglob("*")} == {OTHER_USER}
