"""Snapshots contain what their user may not read, and name what another user has locked."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock.executors.workspace import snapshot
from cellblock.runtime.linux.safe_folder import remove_tree
from tests.plain_user import USER, unprivileged_command

TAKE = """
import os, sys
from pathlib import Path
from cellblock import CheckpointError
from cellblock.executors.workspace import snapshot
work, parent = map(Path, sys.argv[1:])
try:
    snapshot.take_snapshot(work, None, parent)
except CheckpointError as error:
    print(error)
"""
LOCK = """
import os, sys
from pathlib import Path
from cellblock.executors.workspace import snapshot

def state():
    return [(os.stat(name).st_mode & 0o777, os.path.exists(name)) for name in ("file", "folder")]

os.umask(0o022)
work, parent = map(Path, sys.argv[1:])
os.chdir(work)
os.mkdir("folder")
Path("file").write_text("content")
Path("folder/inner").write_text("inside")
for name in ("folder/inner", "file", "folder"):
    os.chmod(name, 0)
os.chmod(".", 0o300)
before = state()
one = snapshot.take_snapshot(work, None, parent)
two = snapshot.take_snapshot(work, one, parent)
snapshot.copy_folder(two.path, parent / "copy")
assert state() == before == [(0, True)] * 2, state()
os.unlink("file")
os.chmod("folder", 0o700)
os.unlink("folder/inner")
snapshot.restore_snapshot(one, work)
for folder in (work, one.path, two.path, parent / "copy"):
    os.chdir(folder)
    assert state() == before, (folder, state())
    for name in ("file", "folder"):
        os.chmod(name, 0o700)
    os.chmod("folder/inner", 0o400)
    print(Path("file").read_text(), Path("folder/inner").read_text())
one.remove()
two.remove()
print(sorted(os.listdir(parent)))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder that every user can write to."""
    path = Path(tempfile.mkdtemp(prefix="cellblock-test-snapshot-"))
    for name in ("", "given", "parent"):
        (path / name).mkdir(exist_ok=True)
        (path / name).chmod(0o777)
    yield path
    remove_tree(str(path))


def run_unprivileged(program: str, folder: Path) -> str:
    made = unprivileged_command("-c", program, str(folder / "given"), str(folder / "parent"))
    if made is None:
        pytest.skip("there is no Python that an unprivileged user can start")
    argv, environment = made
    done = subprocess.run(
        argv, env=environment, cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_files_without_permissions_are_copied_and_restored(folder: Path) -> None:
    if os.geteuid() == 0:  # only the owner may change permissions
        os.chown(folder / "given", USER, USER)
    assert run_unprivileged(LOCK, folder) == "content inside\n" * 4 + "['copy']\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user")
def test_locked_file_of_another_user_is_named(folder: Path) -> None:
    (folder / "given/inner").mkdir()
    (folder / "given/inner/locked").touch(mode=0o600)
    assert run_unprivileged(TAKE, folder) == (
        f"'{folder}/given/inner/locked' belongs to another user, and cannot be copied or replaced: "
        "Permission denied. Change its permissions, or move it out of the work folder.\n"
    )
    assert list((folder / "parent").iterdir()) == []


def test_a_restored_folder_has_the_permissions_of_the_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "work/folder"
    folder.mkdir(parents=True)
    folder.chmod(0o750)
    taken = snapshot.take_snapshot(tmp_path / "work", None, tmp_path)
    folder.chmod(0o010)
    snapshot.restore_snapshot(taken, tmp_path / "work")
    assert folder.stat().st_mode & 0o777 == 0o750
