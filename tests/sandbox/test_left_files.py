"""What other users of a box have left in folders of this machine is taken back."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cellblock.runtime.messages import MountSpec
from cellblock.runtime.spec import SubIds
from cellblock.sandbox.setup import namespaces
from cellblock.sandbox.setup.left_files import LeftFiles

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make files of others")

SUB_IDS = SubIds((200000, 65536), (300000, 65536))
PLAIN_USER, BOX_USER, OTHER_GROUP = 54321, 1000, 43210
_EXCHANGE = 2  # RENAME_EXCHANGE
_AT_FDCWD = -100
_ROUNDS = 2000


def watched(folder: Path, left: LeftFiles) -> LeftFiles:
    left.watch([MountSpec(str(folder), "/x", writable=True)])
    return left


@pytest.fixture
def files(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Two open files, whose names another process exchanges without an end, as live Python can."""
    names = [os.fsencode(tmp_path / name) for name in ("of the box", "foreign")]
    opened = [os.open(name, os.O_CREAT) for name in names]
    first, second = names
    libc = ctypes.CDLL(None)
    pid = os.fork()
    if pid == 0:
        while True:
            libc.renameat2(_AT_FDCWD, first, _AT_FDCWD, second, _EXCHANGE)
    yield opened[0], opened[1]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    for descriptor in opened:
        os.close(descriptor)


def test_a_file_that_gets_the_name_of_one_that_is_taken_back_keeps_its_owner(
    tmp_path: Path, files: tuple[int, int]
) -> None:
    of_the_box, foreign = files
    os.fchown(foreign, 4321, 4321)
    left = watched(tmp_path, LeftFiles(SUB_IDS))
    for _ in range(_ROUNDS):
        os.fchown(of_the_box, 200001, 300001)
        left.take_back()
        assert os.fstat(foreign).st_uid == 4321


def test_folders_of_any_depth_are_taken_back(tmp_path: Path) -> None:
    """With fewer descriptors than folders: a plain user could not remove what is left."""
    left = watched(tmp_path, LeftFiles(SUB_IDS))
    depth = 300

    def nest() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        os.chdir(tmp_path)
        for _ in range(depth):
            os.mkdir("d", 0o700)
            os.chown("d", 200000, 300000)
            os.chdir("d")
        left.take_back()

    in_child(nest)
    os.chdir(tmp_path)
    try:
        for _ in range(depth):
            os.chdir("d")
            status = os.stat(".")
            assert (status.st_uid, status.st_gid) == (0, 0)
    finally:
        os.chdir("/")
        subprocess.run(["rm", "-r", tmp_path / "d"], check=True)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that others can enter. Other runs of pytest close the one above `tmp_path`."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


def test_groups_that_a_plain_user_cannot_map(open_folder: Path) -> None:
    """A folder with the set-group-ID bit gives its group, which may be one of the caller's others.

    The box of the caller does not have this group: it cannot change files by its capabilities then.
    """
    shared = open_folder / "shared"
    shared.mkdir()
    os.chown(shared, PLAIN_USER, OTHER_GROUP)
    shared.chmod(0o2777)

    def take_back_as_plain_user() -> None:
        writer = namespaces.map_writer(BOX_USER, PLAIN_USER, SUB_IDS)
        namespaces.switch_user(PLAIN_USER)
        namespaces.enter_namespaces(user=BOX_USER, network=True, writer=writer)
        left = watched(shared, LeftFiles(None))
        (shared / "own").write_text("")
        in_child(lambda: make_files(shared))
        left.take_back()

    def make_files(folder: Path) -> None:
        os.setresuid(0, 0, 0)  # root of the box
        (folder / "closed").mkdir(mode=0o700)
        (folder / "closed" / "file").write_text("")

    in_child(take_back_as_plain_user)
    found = {path.name: os.stat(path) for path in (shared, *shared.rglob("*"))}
    assert {status.st_uid for status in found.values()} == {PLAIN_USER}
    groups = {name: status.st_gid for name, status in found.items()}
    assert groups == {
        "shared": OTHER_GROUP,
        "own": OTHER_GROUP,
        "closed": PLAIN_USER,
        "file": PLAIN_USER,
    }


def in_child(call: Callable[[], None]) -> None:
    """Call it in a fork, which may become another user, and wait until that has worked."""
    pid = os.fork()
    if pid == 0:
        try:
            call()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
