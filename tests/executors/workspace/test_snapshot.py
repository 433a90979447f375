"""Snapshots contain what their user may not read, and name what another user has locked."""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock.executors.workspace import snapshot
from cellblock.runtime.linux.safe_folder import remove_tree
from tests.plain_user import USER, unprivileged_command

pytestmark = pytest.mark.depends_on_user

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
copies = [parent / "copy", parent / "one", parent / "two"]
for source, copy in zip((work, one, two), copies):
    snapshot.copy_folder(source, copy)
assert state() == before == [(0, True)] * 2, state()
os.unlink("file")
os.chmod("folder", 0o700)
os.unlink("folder/inner")
snapshot.restore_snapshot(one, work)
for folder in (work, *copies):
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
    assert run_unprivileged(LOCK, folder) == "content inside\n" * 4 + "['copy', 'one', 'two']\n"


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


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (folder := tmp_path / "work").mkdir()
    (folder / "inner").mkdir()
    return folder


def write_files(work: Path, count: int, size: int) -> None:
    for number in range(count):
        (work / "inner" / str(number)).write_bytes(random.randbytes(size))


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def disk_bytes(*taken: snapshot.Snapshot) -> int:
    """Return the size of all files of the snapshots, those that they share counted once."""
    found = {
        (status := path.stat()).st_ino: status.st_size
        for each in taken
        for path in each.path.iterdir()
    }
    return sum(found.values())


def test_the_small_files_of_a_snapshot_are_one_file(work: Path, tmp_path: Path) -> None:
    write_files(work, 300, 50)
    before = contents(work)
    taken = snapshot.take_snapshot(work, None, tmp_path)
    assert len(list(taken.path.iterdir())) == 1
    assert taken.stats.copied_bytes == 300 * 50
    write_files(work, 200, 70)
    snapshot.restore_snapshot(taken, work)
    assert contents(work) == before


@pytest.mark.parametrize("size", [0, 1, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, 1 << 20])
def test_a_file_of_any_size_comes_back(size: int, work: Path, tmp_path: Path) -> None:
    write_files(work, 3, size)
    before = contents(work)
    one = snapshot.take_snapshot(work, None, tmp_path)
    two = snapshot.take_snapshot(work, one, tmp_path)
    one.remove()
    snapshot.copy_folder(work, tmp_path / "a")
    snapshot.copy_folder(two, tmp_path / "b")
    (work / "inner/1").write_bytes(b"changed")
    (work / "inner/2").unlink()
    snapshot.restore_snapshot(two, work)
    assert contents(work) == contents(tmp_path / "a") == contents(tmp_path / "b") == before


def test_a_snapshot_of_an_unchanged_folder_copies_nothing(work: Path, tmp_path: Path) -> None:
    write_files(work, 10, 100)
    (work / "large").write_bytes(random.randbytes(1 << 20))
    one = snapshot.take_snapshot(work, None, tmp_path)
    two = snapshot.take_snapshot(work, one, tmp_path)
    assert two.stats.copied_bytes == 0
    assert disk_bytes(one, two) == disk_bytes(one)
    (work / "inner/5").write_bytes(b"changed")
    snapshot.restore_snapshot(two, work)
    three = snapshot.take_snapshot(work, two, tmp_path)
    assert three.stats.copied_bytes == 0


def test_data_that_no_snapshot_needs_is_not_kept_for_ever(work: Path, tmp_path: Path) -> None:
    """Each snapshot replaces the one before, and shares a few small files with it."""
    taken = None
    for number in range(6):
        write_files(work, 50, 1000)
        (work / f"added-{number}").write_bytes(b"never changed")
        new = snapshot.take_snapshot(work, taken, tmp_path)
        if taken is not None:
            taken.remove()
        taken = new
        assert disk_bytes(taken) < 3 * 50_000


def test_a_large_sparse_file_stays_sparse(work: Path, tmp_path: Path) -> None:
    with (work / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    taken = snapshot.take_snapshot(work, None, tmp_path)
    (work / "sparse").unlink()
    snapshot.restore_snapshot(taken, work)
    status = (work / "sparse").stat()
    assert (status.st_size, status.st_blocks) == (1 << 40, 0)
