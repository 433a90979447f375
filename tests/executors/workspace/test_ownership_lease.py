"""Work folders of root on a filesystem that cannot map owners are their owner's again when no executor uses them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock import FunctionError, FunctionWithRequirements
from cellblock.sandbox.setup.namespaces import OUTER_USERS, is_root
from cellblock.sync import SandboxCommandLineCodeExecutor, SandboxSessionCodeExecutor
from tests.sandbox.probes import done

OTHER = 12345
WRITE = "import os; open('file', 'a').write('!'); os.makedirs('deep/er', exist_ok=True); open('deep/er/made', 'w')"
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
    """Give a folder in which something of root's lies, something of somebody else's, and a link out of it."""
    if (
        not is_root()
        or subprocess.run(
            ["mount", "-t", "ramfs", "ramfs", tmp_path], capture_output=True
        ).returncode
        != 0
    ):
        pytest.skip("root alone lends folders, and can mount a filesystem that makes it do so")
    try:
        work = tmp_path / "work"
        work.mkdir()
        (work / "file").write_text("")
        (work / "other").write_text("")
        os.chown(work / "other", OTHER, OTHER)
        (work / "link").symlink_to("/etc/hostname")
        yield work
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def owners(folder: Path) -> set[int]:
    """Give whose `folder` is, and all in it but what was somebody else's."""
    found = {path.lstat().st_uid for path in (folder, *folder.rglob("*")) if path.name != "other"}
    assert (folder / "other").stat().st_uid == OTHER
    assert os.stat("/etc/hostname").st_uid == 0
    return found


@pytest.mark.parametrize("kind", [SandboxCommandLineCodeExecutor, SandboxSessionCodeExecutor])
def test_a_folder_comes_back_with_all_that_blocks_made_in_it(kind: type, folder: Path) -> None:
    with kind(work_dir=folder) as executor:
        done(executor, WRITE)
        assert folder.stat().st_uid in OUTER_USERS, (
            "this kernel maps owners here as well: the test needs another filesystem"
        )
        executor.restart()
        done(executor, WRITE)
    assert owners(folder) == {0}
    assert (folder / "file").read_text() == "!!"


def test_it_stays_lent_until_the_last_executor_stops(folder: Path) -> None:
    with SandboxCommandLineCodeExecutor(work_dir=folder) as first:
        with SandboxCommandLineCodeExecutor(work_dir=folder) as second:
            done(second, WRITE)
        done(first, WRITE)
        assert folder.stat().st_uid in OUTER_USERS
    assert owners(folder) == {0}


def test_it_comes_back_where_the_executor_does_not_start(folder: Path) -> None:
    function = FunctionWithRequirements.from_str(
        "def one() -> int:\n    return 1", global_imports=["not_there"]
    )
    with (
        pytest.raises(FunctionError),
        SandboxCommandLineCodeExecutor(work_dir=folder, functions=[function]),
    ):
        pass
    assert owners(folder) == {0}


def test_what_a_killed_owner_could_not_take_back_the_next_one_does(folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    killed = subprocess.run([sys.executable, "-c", KILLED, folder], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert owners(folder) - {0}
    (folder / "of root").write_text("")
    with SandboxCommandLineCodeExecutor(work_dir=folder) as executor:
        done(executor, f"{WRITE}; open('killed', 'a'); open('of root', 'a')")
    assert owners(folder) == {0}


def test_later_blocks_change_what_a_block_has_named(folder: Path) -> None:
    with SandboxCommandLineCodeExecutor(work_dir=folder) as executor:
        for code in (*NAMED, CHANGE):
            done(executor, code)
    assert owners(folder) == {0}
    assert (folder / "below" / "named.py").read_text().endswith("#")


@pytest.mark.skipif(not is_root(), reason="root alone works in somebody else's folder")
def test_later_blocks_change_what_a_block_has_named_in_somebody_elses_folder(
    tmp_path: Path,
) -> None:
    os.chown(tmp_path, OTHER, OTHER)
    with SandboxCommandLineCodeExecutor(work_dir=tmp_path) as executor:
        for code in (*NAMED, CHANGE):
            done(executor, code)
    assert {path.stat().st_uid for path in tmp_path.rglob("*")} == {OTHER}
