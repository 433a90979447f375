"""Folders in which code has made more than anybody wants to look at: what each look costs is bounded."""

from __future__ import annotations

import contextlib
import functools
import os
import time
import tracemalloc
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path

import pytest

from cellblock.executors.workspace.workspace import Workspace
from cellblock.runtime.linux.rmtree import remove_tree
from cellblock.sandbox.setup.chown import change_owner


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


class Counted:
    """What `os.scandir` and `os.listdir` give, with the entries counted that are taken."""

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
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def fill(folder: Path, count: int) -> None:
    """Put many hidden files into a folder."""
    for number in range(count):
        if (
            first := number // 30_000 * 30_000
        ) == number:  # of those that are one file, with as many names as disks allow
            (folder / f".{first}").write_text("")
        else:
            os.link(folder / f".{first}", folder / f".{number}")


def test_of_many_hidden_files_only_a_part_is_looked_at(
    workspace: Workspace, counted: Counted
) -> None:
    fill(workspace.path, 130_000)
    beside_a_block = Workspace(workspace.path)
    beside_a_block.write_temporary(workspace.temporary_name("py"), "")
    for looking in (workspace, workspace, beside_a_block):
        counted.entries = 0
        looking.changed(0, besides="")
        assert counted.entries < 110_000
        assert not looking.is_small


def test_of_many_folders_only_a_part_is_looked_into(workspace: Workspace, counted: Counted) -> None:
    for number in range(100):
        for inner in range(100):
            (workspace.path / str(number) / str(inner)).mkdir(parents=True)
    counted.folders = 0  # mkdir
    workspace.changed(0, besides="")
    assert counted.folders < 6_000
    assert not workspace.is_small


@pytest.mark.parametrize(
    "deal_with",
    [
        remove_tree,
        functools.partial(
            change_owner, before=(os.getuid(), os.getgid()), after=(os.getuid(), os.getgid())
        ),
    ],
)
def test_a_folder_of_many_files_is_dealt_with_without_a_list_of_them(
    deal_with: Callable[[str], None], tmp_path: Path
) -> None:
    fill(tmp_path, 20_000)
    (tmp_path / "folder").mkdir()
    fill(tmp_path / "folder", 20_000)
    tracemalloc.start()
    try:
        deal_with(str(tmp_path))
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()
    assert tmp_path.exists() == (deal_with is not remove_tree)


def test_a_large_folder_is_small_again_when_it_was_emptied(workspace: Workspace) -> None:
    fill(workspace.path, 3_000)
    workspace.changed(0, besides="")
    assert not workspace.is_small
    for path in workspace.path.glob(".*"):
        path.unlink()
    since = workspace.write("a.py", "")
    assert ("a.py", 0) in workspace.changed(since, besides="")
    assert workspace.is_small


def test_the_files_of_an_ordinary_large_project_are_all_listed(workspace: Workspace) -> None:
    fill(workspace.path, 5_000)
    for number in range(2_000):
        (workspace.path / f"package_{number}" / "__pycache__").mkdir(parents=True)
        for name in ("a.py", "b.py", ".hidden"):
            (workspace.path / f"package_{number}" / name).write_text("")
    found = [name for name, _ in workspace.changed(0, besides="")]
    assert found == sorted(
        f"package_{number}/{name}.py" for number in range(2_000) for name in "ab"
    )


def test_an_empty_folder_is_listed_no_more_until_something_has_come(
    tmp_path: Path, counted: Counted
) -> None:
    workspace = Workspace(tmp_path)
    for _ in range(5):
        assert workspace.changed(0, besides="") == []
        time.sleep(0.03)
    assert counted.folders == 2
    (tmp_path / "new.txt").write_text("new")
    os.utime(tmp_path, ns=(0, 0))
    assert workspace.changed(0, besides="") == [("new.txt", 3)]
    (tmp_path / "new.txt").unlink()
    assert workspace.changed(0, besides="") == []
