"""The cost of each scan is limited, even in a folder with very many files."""

from __future__ import annotations

import contextlib
import functools
import os
import time
import tracemalloc
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path

import pytest

from cellblock.executors.workspace import folder_scan
from cellblock.executors.workspace.workspace import Workspace
from cellblock.runtime.linux.safe_folder import remove_tree
from cellblock.sandbox.setup.chown import chown_tree


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


class EntryCounter:
    """Count the folders and entries that `os.scandir` and `os.listdir` read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folders = self.entries = 0
        self._scandir, self._listdir = os.scandir, os.listdir
        monkeypatch.setattr(os, "scandir", self._scan)
        monkeypatch.setattr(os, "listdir", self._list)

    @contextlib.contextmanager
    def _scan(self, folder: int) -> Generator[Iterator[os.DirEntry[str]]]:
        self.folders += 1
        with self._scandir(folder) as entries:
            yield self._each(entries)

    def _each(self, entries: Iterable[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
        for entry in entries:
            self.entries += 1
            yield entry

    def _list(self, folder: int) -> list[str]:
        self.folders += 1
        names = self._listdir(folder)
        self.entries += len(names)
        return names


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> EntryCounter:
    return EntryCounter(monkeypatch)


def fill(folder: Path, count: int) -> None:
    """Create many hidden files in a folder."""
    for number in range(count):
        # Hard links are cheap. A file can have a limited number of them.
        if (first := number // 30_000 * 30_000) == number:
            (folder / f".{first}").write_text("")
        else:
            os.link(folder / f".{first}", folder / f".{number}")


@pytest.fixture
def low_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let scans stop at a tenth of the usual cost."""
    monkeypatch.setattr(folder_scan, "_MAX_COST", folder_scan._MAX_COST // 10)


@pytest.mark.usefixtures("low_limit")
def test_only_a_part_of_many_hidden_files_is_scanned(
    workspace: Workspace, counted: EntryCounter
) -> None:
    fill(workspace.path, 13_000)
    with_running_block = Workspace(workspace.path)
    with_running_block.write_temporary(workspace.temporary_name("py"), "")
    for scanned in (workspace, workspace, with_running_block):
        counted.entries = 0
        scanned.list_changes(0, exclude="")
        assert counted.entries < 11_000
        assert not scanned.is_small


@pytest.mark.usefixtures("low_limit")
def test_only_a_part_of_many_folders_is_scanned(
    workspace: Workspace, counted: EntryCounter
) -> None:
    for number in range(32):
        for inner in range(32):
            (workspace.path / str(number) / str(inner)).mkdir(parents=True)
    counted.folders = 0  # ignore those that mkdir read
    workspace.list_changes(0, exclude="")
    assert counted.folders < 600
    assert not workspace.is_small


@pytest.mark.parametrize(
    "process_tree",
    [
        remove_tree,
        functools.partial(
            chown_tree, before=(os.getuid(), os.getgid()), after=(os.getuid(), os.getgid())
        ),
    ],
)
@pytest.mark.slow
def test_a_folder_with_many_files_is_processed_without_listing_them_in_memory(
    process_tree: Callable[[str], None], tmp_path: Path
) -> None:
    fill(tmp_path, 10_000)
    (tmp_path / "folder").mkdir()
    fill(tmp_path / "folder", 10_000)
    tracemalloc.start()
    try:
        process_tree(str(tmp_path))
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()
    assert tmp_path.exists() == (process_tree is not remove_tree)


def test_a_large_folder_is_small_again_after_it_was_emptied(workspace: Workspace) -> None:
    fill(workspace.path, 3_000)
    workspace.list_changes(0, exclude="")
    assert not workspace.is_small
    for path in workspace.path.glob(".*"):
        path.unlink()
    since = workspace.write("a.py", "")
    assert ("a.py", 0) in workspace.list_changes(since, exclude="")
    assert workspace.is_small


def test_the_files_of_an_ordinary_large_project_are_all_listed(workspace: Workspace) -> None:
    fill(workspace.path, 5_000)
    for number in range(2_000):
        (workspace.path / f"package_{number}" / "__pycache__").mkdir(parents=True)
        for name in ("a.py", "b.py", ".hidden"):
            (workspace.path / f"package_{number}" / name).write_text("")
    found = [name for name, _ in workspace.list_changes(0, exclude="")]
    assert found == sorted(
        f"package_{number}/{name}.py" for number in range(2_000) for name in "ab"
    )


def test_an_empty_folder_is_not_listed_again_until_it_changes(
    tmp_path: Path, counted: EntryCounter
) -> None:
    workspace = Workspace(tmp_path)
    for _ in range(5):
        assert workspace.list_changes(0, exclude="") == []
        time.sleep(0.03)
    assert counted.folders == 2
    (tmp_path / "new.txt").write_text("new")
    os.utime(tmp_path, ns=(0, 0))
    assert workspace.list_changes(0, exclude="") == [("new.txt", 3)]
    (tmp_path / "new.txt").unlink()
    assert workspace.list_changes(0, exclude="") == []
