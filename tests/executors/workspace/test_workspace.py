"""Workspace: names stay in the work folder despite links, and changed files are listed."""

import functools
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cellblock.errors import WorkspaceError
from cellblock.executors.workspace.workspace import OutsideWorkspace, Workspace
from cellblock.runtime.linux.safe_folder import create_file_at, write_new_file_at

PARTS = st.sampled_from(
    ["a", "b.py", "..", ".", "", "/", "link", "folder", "out", "~", "\0", "\udc80", "...", "é"]
)
NAMES = st.lists(PARTS, min_size=1, max_size=6).map("/".join)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    folder = tmp_path / "work"
    (folder / "folder").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (folder / "out").symlink_to(tmp_path / "outside")
    (folder / "link").symlink_to("folder")
    return Workspace(folder)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(NAMES | st.text(max_size=20))
def test_resolve_returns_a_path_inside_or_raises(workspace: Workspace, name: str) -> None:
    try:
        inside = workspace.resolve(name)
    except OutsideWorkspace:
        return
    real = Path(os.path.realpath(workspace.path / inside))
    assert workspace.path in real.parents
    assert not real.is_dir()
    assert not os.path.isabs(inside)
    assert ".." not in Path(inside).parts


def test_a_name_inside_is_resolved(workspace: Workspace) -> None:
    names = {
        "a.py": "a.py",
        "sub/a.py": "sub/a.py",
        "./sub/../a.py": "a.py",
        "link/a.py": "folder/a.py",
        "link/../link/a.py": "folder/a.py",
        "...": "...",
        "..a": "..a",
        "..a/b": "..a/b",
        str(workspace.path / "a.py"): "a.py",
    }
    assert {name: workspace.resolve(name) for name in names} == names


def test_a_name_outside_is_refused(workspace: Workspace) -> None:
    outside = ["../a.py", "/etc/passwd", "out/a.py", "folder/../../a", "../work2/a"]
    for name in (*outside, ".", "", "folder", "a\0b", "\udc80"):
        with pytest.raises(OutsideWorkspace):
            workspace.resolve(name)


def test_dangling_links_and_link_loops_are_new_files(workspace: Workspace) -> None:
    links = {
        "dangling": "nothing.py",
        "dangling_folder": "nothing",
        "itself": "itself",
        "one": "other",
        "other": "one",
        "to_itself": "./itself",
        "0": "end.py",
        **{str(number): str(number - 1) for number in range(1, 40)},
    }
    for link, target in links.items():
        (workspace.path / link).symlink_to(target)
    names = {
        "dangling": "nothing.py",
        "dangling_folder/a.py": "nothing/a.py",
        "itself": "itself",
        "one": "one",
        "to_itself": "itself",
        "39": "end.py",
    }
    assert {name: workspace.resolve(name) for name in names} == names


@pytest.fixture
def link_lookups(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return the paths that were checked for links."""
    link_lookups = list[object]()

    def record(lookup: Callable[..., object], path: object, **options: object) -> object:
        link_lookups.append(path)
        return lookup(path, **options)

    monkeypatch.setattr(os, "lstat", functools.partial(record, os.lstat))
    monkeypatch.setattr(os, "readlink", functools.partial(record, os.readlink))
    return link_lookups


def test_a_name_follows_no_more_links_than_the_kernel_does(
    workspace: Workspace, link_lookups: list[object]
) -> None:
    (workspace.path / "0").symlink_to("end.py")
    for number in range(1, 1500):
        (workspace.path / str(number)).symlink_to(str(number - 1))
    for name in ("40", "1499", "1499/../a.py", f"{workspace.path}/1499"):
        with pytest.raises(OutsideWorkspace):
            workspace.resolve(name)
    assert len(link_lookups) < 500


@pytest.mark.slow
def test_many_links_and_long_names_are_refused_quickly(
    workspace: Workspace, link_lookups: list[object]
) -> None:
    for number in range(800):
        (workspace.path / f"m{number:03}").symlink_to(".")
    body = "/".join(f"m{number:03}" for number in range(800))
    for outer in range(3):
        names = [f"{outer:x}.{inner:x}" for inner in range(700)]
        for name in names:
            (workspace.path / name).symlink_to(body)
        (workspace.path / f"k{outer}").symlink_to("/".join(names)[:4000].rpartition("/")[0])
    (workspace.path / "l.py").symlink_to("k0/k1/k2/x.py")
    for name in ("l.py", "/".join(["m000", ".."] * 100_000), f"{body}/{body}/a.py"):
        with pytest.raises(OutsideWorkspace):
            workspace.resolve(name)
    assert len(link_lookups) < 10_000


def test_write_creates_folders_and_replaces_files(workspace: Workspace) -> None:
    workspace.write("new/deep/a.py", "one")
    workspace.write("new/deep/a.py", "two é \udc80")
    assert (workspace.path / "new/deep/a.py").read_text() == "two é ?"
    assert [path.name for path in (workspace.path / "new/deep").iterdir()] == ["a.py"]


def test_a_link_inserted_after_resolve_is_not_followed(
    workspace: Workspace, tmp_path: Path
) -> None:
    inside = workspace.resolve("sub/a.py")
    (workspace.path / "sub").symlink_to(tmp_path / "outside")
    with pytest.raises(OutsideWorkspace):
        workspace.write(inside, "text")
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_file_that_is_a_link_is_replaced_and_its_target_kept(
    workspace: Workspace, tmp_path: Path
) -> None:
    target = tmp_path / "outside" / "kept"
    target.write_text("kept")
    inside = workspace.resolve("new.py")
    (workspace.path / "new.py").symlink_to(target)
    workspace.write(inside, "text")
    assert (target.read_text(), (workspace.path / "new.py").read_text()) == ("kept", "text")


def test_remove_does_not_follow_links(workspace: Workspace, tmp_path: Path) -> None:
    target = tmp_path / "outside" / "kept"
    target.write_text("kept")
    workspace.remove("out/kept")
    assert target.exists()
    workspace.remove("not there")


def test_a_missing_work_folder_is_named(workspace: Workspace) -> None:
    workspace.path.rename(workspace.path.with_name("moved"))
    with pytest.raises(WorkspaceError, match=f"{workspace.display_path} cannot be opened"):
        workspace.check_identity()
    with pytest.raises(WorkspaceError, match="a.py cannot be written"):
        workspace.write("a.py", "")


def test_a_replaced_work_folder_is_detected(workspace: Workspace) -> None:
    workspace.path.rename(workspace.path.with_name("moved"))
    workspace.path.mkdir()
    with pytest.raises(WorkspaceError, match="was replaced by another"):
        workspace.check_identity()


def test_new_and_changed_files_are_listed_once(workspace: Workspace) -> None:
    (workspace.path / "before").write_text("")
    first = workspace.write("script.py", "")
    (workspace.path / "made.csv").write_text("12345")
    (workspace.path / "folder" / "inner").write_text("1")
    listed = workspace.list_changes(first, exclude="script.py")
    assert [item for item in listed if item[0] != "before"] == [
        ("folder/inner", 1),
        ("made.csv", 5),
    ]
    assert workspace.list_changes(workspace.write("script.py", ""), exclude="script.py") == []


def test_hidden_files_links_and_bytecode_are_not_listed(workspace: Workspace) -> None:
    since = workspace.write("script.py", "")
    (workspace.path / ".hidden").write_text("")
    (workspace.path / "__pycache__").mkdir()
    (workspace.path / "__pycache__" / "a.pyc").write_text("")
    (workspace.path / "new_link").symlink_to("script.py")
    os.mkfifo(workspace.path / "pipe")
    assert workspace.list_changes(since, exclude="script.py") == []


def test_a_name_that_is_not_utf_8_can_be_printed(workspace: Workspace) -> None:
    since = workspace.write("script.py", "")
    Path(os.fsdecode(os.fsencode(workspace.path) + b"/bad\xff")).write_text("")
    assert workspace.list_changes(since, exclude="script.py") == [("bad\ufffd", 0)]


def test_an_incomplete_file_is_removed(workspace: Workspace) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        for write in (workspace.write, workspace.write_temporary):
            with pytest.raises(WorkspaceError, match=r"big.py cannot be written"):
                write("big.py", "x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {path.name for path in workspace.path.iterdir()} == {"folder", "link", "out"}


def test_a_folder_that_code_has_removed_is_only_created_by_a_write(workspace: Workspace) -> None:
    workspace.mark_finished("gone/a.py")
    workspace.ignore_upload("gone/a.py")
    workspace.remove("gone/a.py")
    with pytest.raises(WorkspaceError, match="cannot be read"):
        workspace.read("gone/a.py")
    assert not (workspace.path / "gone").exists()
    workspace.write("gone/a.py", "")
    assert workspace.read("gone/a.py")[0] == b""


def test_a_temporary_file_never_replaces_another(workspace: Workspace) -> None:
    (workspace.path / "taken.py").write_text("kept")
    with pytest.raises(WorkspaceError, match=r"taken.py cannot be written"):
        workspace.write_temporary("taken.py", "new")
    assert (workspace.path / "taken.py").read_text() == "kept"


@pytest.mark.parametrize("make", [create_file_at, functools.partial(write_new_file_at, data=b"1")])
def test_the_server_creates_no_files_through_a_link(
    make: Callable[[str], int], tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "work").symlink_to("elsewhere")
    with pytest.raises(NotADirectoryError):
        make(str(tmp_path / "work" / "a.txt"))
    made = str(tmp_path / "elsewhere" / "a.txt")
    make(made)
    with pytest.raises(FileExistsError) as taken:
        make(made)
    assert taken.value.filename == made


def test_the_server_reports_the_change_time_on_disk(tmp_path: Path) -> None:
    assert write_new_file_at(str(tmp_path / "a.py"), b"1") == (tmp_path / "a.py").stat().st_ctime_ns


def test_changes_to_the_files_of_the_last_blocks_are_listed(workspace: Workspace) -> None:
    names = [workspace.temporary_name("py") for _ in range(200)]
    for name in names:
        workspace.write_temporary(name, "1")
        workspace.mark_finished(name)
        (workspace.path / name).write_text("another")
    (workspace.path / "tmp_code_of_somebody.py").write_text("else")
    since = workspace.write("mine.py", "") - 10**9
    found = [name for name, _ in workspace.list_changes(since, exclude="mine.py")]
    assert found == sorted([*names[-20:], "tmp_code_of_somebody.py"])


@pytest.mark.parametrize("own_name", ["", "mine.py"])
def test_files_of_blocks_are_not_listed_even_in_the_same_clock_tick(
    workspace: Workspace, own_name: str
) -> None:
    name = own_name or workspace.temporary_name("py")
    since = (workspace.write if own_name else workspace.write_temporary)(name, "1")
    assert workspace.list_changes(since, exclude=name) == []
    if not own_name:
        workspace.mark_finished(name)
    assert workspace.list_changes(since, exclude="of the next block") == []
    (workspace.path / name).write_text("another")
    assert workspace.list_changes(since, exclude="of the next block") == [(name, 7)]


@pytest.mark.slow
def test_many_files_of_old_blocks_hide_no_changes(workspace: Workspace) -> None:
    for _ in range(15_000):
        name = workspace.temporary_name("py")
        workspace.write_temporary(name, "")
        workspace.mark_finished(name)
    since = workspace.write("mine.py", "")
    made = sorted(f"made_{number}" for number in range(30))
    for name in made:
        (workspace.path / name).write_text("by a block")
    found = {name for name, _ in workspace.list_changes(since, exclude="mine.py")}
    assert found >= set(made)


def test_a_file_created_right_after_a_scan_is_listed(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    for number in range(300):
        assert workspace.list_changes(0, exclude="") == []
        (tmp_path / f"{number}.txt").write_text("")
        assert workspace.list_changes(0, exclude="") == [(f"{number}.txt", 0)]
        (tmp_path / f"{number}.txt").unlink()
