"""Nothing outside a folder is read, written or removed while code swaps its names for links."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from cellblock import SandboxSessionCodeExecutor
from cellblock.box.life import BoxLife
from cellblock.box.transfers import Download, Upload
from cellblock.errors import CellblockError
from cellblock.executors.workspace import snapshot
from cellblock.executors.workspace.workspace import OutsideWorkspace, Workspace
from cellblock.runtime.box_orders import BoxAnswer, BoxOrder, FileEntry, StatPath
from cellblock.runtime.linux import safe_folder
from cellblock.runtime.linux.safe_folder import (
    SafeFolder,
    empty_folder,
    remove_tree,
    write_new_file_at,
)
from cellblock.sandbox.setup.chown import chown_tree
from cellblock.server.refusals import Refusal
from cellblock.server.sessions.disk_quota import disk_bytes
from cellblock.server.sessions.files import SessionFolder

pytestmark = pytest.mark.depends_on_user

_FLAGS = ("_FOLDER", "_READ", "_HANDLE", "_CREATE")
_USES, _SWAPS = 300, 3000  # of each function, at least
_SECRET_BYTES = 1 << 20
_ERRORS = (OSError, CellblockError, OutsideWorkspace, Refusal)

# Replaces `inner` and `file` in a folder by links to those of another, and back, for ever.
SWAP = """
import contextlib, ctypes, mmap, os, shutil, sys

work, outside, counter = sys.argv[1:]
with open(counter, "r+b") as file:
    swaps = mmap.mmap(file.fileno(), 8).__setitem__
renameat2, here, exchange = ctypes.CDLL(None).renameat2, -100, 2
os.chdir(work)
count = 0

def reset(name, target):
    for path in (name, "." + name):
        if os.path.islink(path):
            os.unlink(path)
    shutil.rmtree("." + name, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink("." + name)
    os.symlink(target, "." + name)

def prepare():
    reset("inner", outside)
    reset("file", outside + "/file")
    open("file", "a").close()
    os.makedirs("inner", exist_ok=True)
    open("inner/file", "a").close()

while True:
    with contextlib.suppress(OSError):  # what it prepares is being removed
        prepare()
    for name in (b"inner", b"file") * 16:
        if renameat2(here, name, here, b"." + name, exchange):
            break  # one has been removed
        count += 1
        swaps(slice(0, 8), count.to_bytes(8, "little"))
"""


class Attack:
    """A folder `work`, where links to what is in `outside` replace a folder and a file."""

    process: subprocess.Popen[bytes]  # which replaces them

    def __init__(self, top: Path) -> None:
        self.work, self.outside, self.copies = top / "work", top / "outside", top / "copies"
        for folder in (self.work, self.outside, self.copies):
            folder.mkdir()
        (self.outside / "secret").write_bytes(b"s" * _SECRET_BYTES)
        (self.outside / "file").write_bytes(b"secret")
        self.counter = top / "counter"
        self.counter.write_bytes(bytes(8))
        self._before = self._state()

    @property
    def swaps(self) -> int:
        return int.from_bytes(self.counter.read_bytes(), "little")

    def _state(self) -> list[tuple[str, int, int]]:
        with os.scandir(self.outside) as entries:
            found = [(entry.name, entry.stat().st_size, entry.stat().st_uid) for entry in entries]
        return sorted(found)

    @property
    def is_outside_changed(self) -> bool:
        return self._state() != self._before


@pytest.fixture
def attack() -> Iterator[Attack]:
    # In memory: removing a folder on a disk takes milliseconds, and the race many attempts.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as top:
        attack = Attack(Path(top))
        paths = [str(path) for path in (attack.work, attack.outside, attack.counter)]
        with subprocess.Popen([sys.executable, "-S", "-c", SWAP, *paths]) as process:
            attack.process = process
            yield attack
            process.kill()


# Each of these uses the folder once, and returns True if it got something from outside.
Use = Callable[[Attack], bool | None]


def read_in_folder(attack: Attack) -> bool:
    with SafeFolder.at(attack.work, "inner") as folder, folder.read_file("file") as file:
        return file.read() == b"secret"


def read_file(attack: Attack) -> bool:
    with SafeFolder.at(attack.work) as folder, folder.read_file("file") as file:
        return file.read() == b"secret"


def read_with_rights(attack: Attack) -> bool:
    with SafeFolder.at(attack.work) as work, work.folder("inner", rights=0o700) as folder:
        with open(folder.open_file("file", rights=0o400), "rb") as file:
            return file.read() == b"secret"


def list_folder(attack: Attack) -> bool:
    with SafeFolder.at(attack.work, "inner") as folder:
        return "secret" in dict(folder.statuses())


def write_file(attack: Attack) -> None:
    with SafeFolder.at(attack.work, "inner") as folder:
        folder.write_new_file(f"new-{attack.swaps}", b"")


def replace_file(attack: Attack) -> None:
    with SafeFolder.at(attack.work, "inner") as folder, folder.replace_file("file") as file:
        file.write(b"replaced")


def make_folder(attack: Attack) -> None:
    SafeFolder.at(attack.work, "inner", "new", create=True).close()


def link(attack: Attack) -> None:
    with SafeFolder.at(attack.work, "inner") as folder:
        folder.link(attack.outside / "file", f"link-{attack.swaps}")


def remove(attack: Attack) -> None:
    with SafeFolder.at(attack.work) as folder:
        folder.remove("inner")


def remove_by_path(attack: Attack) -> None:
    remove_tree(str(attack.work / "inner"))


def empty_by_path(attack: Attack) -> None:
    empty_folder(str(attack.work / "inner"))


def write_by_path(attack: Attack) -> None:
    write_new_file_at(f"{attack.work}/inner/new-{attack.swaps}", b"")


def change_owner(attack: Attack) -> None:
    chown_tree(str(attack.work), (os.getuid(), os.getgid()), (1, 1))


def measure_quota(attack: Attack) -> bool:
    return disk_bytes([attack.work]) >= _SECRET_BYTES


def write_in_workspace(attack: Attack) -> None:
    Workspace(attack.work).write("inner/file", "replaced")


def read_in_workspace(attack: Attack) -> bool:
    return Workspace(attack.work).read("inner/file")[0] == b"secret"


def scan_workspace(attack: Attack) -> bool:
    return "inner/secret" in Workspace(attack.work).list_files()


def remove_in_workspace(attack: Attack) -> None:
    Workspace(attack.work).remove("inner/file")


def session_files(attack: Attack) -> SessionFolder:
    return SessionFolder(attack.work)


def read_in_session(attack: Attack) -> bool:
    with session_files(attack).open("inner/file") as file:
        return file.read() == b"secret"


def list_session(attack: Attack) -> bool:
    found = session_files(attack).list_folder(recursive=True)
    return any(info.name == "secret" for info in found)


def write_in_session(attack: Attack) -> None:
    session_files(attack).write("inner/file", lambda file: file.write(b"replaced"))


def delete_in_session(attack: Attack) -> None:
    session_files(attack).delete("inner", folders=True)


def copy(attack: Attack) -> bool:
    target = attack.copies / str(attack.swaps)
    with contextlib.suppress(*_ERRORS):
        snapshot.copy_folder(attack.work, target)
    try:
        return (target / "inner/secret").exists() and not (target / "inner").is_symlink()
    finally:
        remove_tree(str(target))


def restore(attack: Attack) -> None:
    saved = attack.copies / "saved"
    if not saved.exists():
        (saved / "inner").mkdir(parents=True)
        (saved / "inner/restored").touch()
    taken = snapshot.take_snapshot(saved, None, attack.copies)
    try:
        snapshot.restore_snapshot(taken, attack.work)
    finally:
        taken.remove()


class AnyBox(BoxLife):
    """A box that keeps what is sent to it. In its folder `top` is a folder `new`."""

    def __init__(self) -> None:
        super().__init__(SandboxSessionCodeExecutor(), None)
        self.received = b""

    async def ask(
        self, order: BoxOrder, data: AsyncIterable[bytes] | None = None, *, path: str = ""
    ) -> tuple[BoxAnswer, bytes]:
        """See `BoxLife`."""
        async for piece in data or _nothing():
            self.received += piece
        if isinstance(order, StatPath):
            return BoxAnswer(entries=(_folder_entry("top"),)), b""
        return BoxAnswer(entries=(_folder_entry("new"),) if path == "top" else ()), b""


async def _nothing() -> AsyncIterator[bytes]:
    for piece in ():
        yield piece


def _folder_entry(name: str) -> FileEntry:
    return FileEntry(name, f"/{name}", "folder", False, 0, 0o755, 0.0)


def _uploads_secret(source: Path) -> bool:
    box = AnyBox()
    with contextlib.suppress(OSError):
        asyncio.run(Upload(box, "").path(source, "top"))
    return b"s" in box.received


def upload_folder(attack: Attack) -> bool:
    return _uploads_secret(attack.work)


def upload_named_folder(attack: Attack) -> bool:
    return _uploads_secret(attack.work / "inner")


def upload_named_file(attack: Attack) -> bool:
    return _uploads_secret(attack.work / "file")


def download_to_named_folder(attack: Attack) -> None:
    asyncio.run(Download(AnyBox(), user="", room=None).run("top", attack.work / "inner"))


USES: list[Use] = [
    read_in_folder,
    read_file,
    read_with_rights,
    list_folder,
    write_file,
    replace_file,
    make_folder,
    link,
    remove,
    remove_by_path,
    empty_by_path,
    write_by_path,
    change_owner,
    measure_quota,
    write_in_workspace,
    read_in_workspace,
    scan_workspace,
    remove_in_workspace,
    read_in_session,
    list_session,
    write_in_session,
    delete_in_session,
    copy,
    restore,
    upload_folder,
    upload_named_folder,
    upload_named_file,
    download_to_named_folder,
]


@pytest.fixture(params=USES, ids=lambda use: use.__name__)
def use(request: pytest.FixtureRequest) -> Use:
    if request.param is change_owner and os.geteuid() != 0:
        pytest.skip("only root changes the owner of files")
    return request.param


def uses_outside(use: Use, attack: Attack) -> bool:
    """Use the folder once. Return True if this has reached outside."""
    with contextlib.suppress(*_ERRORS):
        if use(attack):
            return True
    return attack.is_outside_changed


def test_nothing_outside_is_used_while_links_replace_the_names(use: Use, attack: Attack) -> None:
    count = 0
    while count < _USES or attack.swaps < _SWAPS:
        assert attack.process.poll() is None, "nothing swaps the names any more"
        assert not uses_outside(use, attack)
        count += 1


@pytest.mark.slow  # until the two meet by chance
def test_without_its_flags_each_use_reaches_outside(
    use: Use, attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in _FLAGS:
        monkeypatch.setattr(safe_folder, name, getattr(safe_folder, name) & ~os.O_NOFOLLOW)
    while not uses_outside(use, attack):
        assert attack.process.poll() is None, "nothing swaps the names any more"


def test_an_emptied_folder_keeps_its_permissions(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("kept")
    folder = tmp_path / "folder"
    deep = folder / "a" / "b" / "c"
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    (folder / "link").symlink_to(outside)
    (folder / "a").chmod(0o000)
    folder.chmod(0o711)
    assert empty_folder(str(folder))
    assert os.listdir(folder) == []
    assert folder.stat().st_mode & 0o777 == 0o711
    assert outside.read_text() == "kept"


def test_a_missing_folder_is_not_emptied(tmp_path: Path) -> None:
    assert not empty_folder(str(tmp_path / "missing"))
