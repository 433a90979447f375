"""`:undo` takes back what code changed in the work folder, and `:diff` shows it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cellblock.cli.chat.folder_history import FolderHistory
from tests.cli.chat.test_terminal import PROMPT, chat, press, say

pytestmark = pytest.mark.usefixtures("sandbox")

EDIT = """Done.

```sh
rm lost.txt
sed -i s/-/+/ calc.py
echo new > .env
mkdir deep; echo 1 > deep/made.txt
```
"""


def test_undo_restores_the_work_folder_and_diff_shows_what_code_changed(cwd: Path) -> None:
    (cwd / "lost.txt").write_text("precious\n")
    (cwd / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    (cwd / "mine.txt").write_text("old\n")
    before = tree(cwd)
    arguments = ("--work-dir", ".", "--no-save", "task")
    with chat(EDIT, "Fixed.", arguments=arguments) as (terminal, _):
        press(terminal, "y", "+    return a + b", "Fixed.", PROMPT)
        assert "deep" in os.listdir(cwd)
        (cwd / "mine.txt").write_text("edited meanwhile\n")
        terminal.type_keys(":diff\r")
        for shown in ("+new", "--- lost.txt", "-precious", PROMPT):
            terminal.wait_for(shown)
        terminal.type_keys(":undo\r")
        terminal.wait_for("as before: .env, calc.py, deep/made.txt, lost.txt")
        terminal.wait_for("taken back: task")
        terminal.wait_for(PROMPT)
    assert tree(cwd) == before | {"mine.txt": "edited meanwhile\n"}


def test_retry_answers_again_in_the_folder_as_it_was(cwd: Path) -> None:
    arguments = ("--work-dir", ".", "--no-save", "--approve", "never", "task")
    again = "```sh\nls; echo 2 >> made.txt\n```"
    with chat("```sh\necho 1 >> made.txt\n```", "One.", again, "Two.", arguments=arguments) as (
        terminal,
        _,
    ):
        terminal.wait_for("One.")
        say(terminal, ":retry", "as before: made.txt", "Two.")
    assert (cwd / "made.txt").read_text() == "2\n"


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text() if path.is_file() else ""
        for path in folder.rglob("*")
        if "state" not in path.parts
    }


def test_only_what_a_run_changed_is_taken_back(tmp_path: Path) -> None:
    """Whatever others changed between and after the runs stays, and is named."""
    folder = tmp_path / "folder"
    folder.mkdir()
    history = FolderHistory(str(folder))

    def run(number: int, **files: str | None) -> None:
        before = history.begin()
        write(folder, **files)
        assert history.end(before, number, exclude=None) is not None

    write(folder, a="0", b="0", c="0", d="0")
    (folder / "link").symlink_to("a")
    with history.open():
        run(1, a="1", b="1", e="1")
        write(folder, b="person")
        run(3, a="3", b="3", c=None, d="3", f="3")
        write(folder, d="person", f="person")
        undone = history.undo(3)
        assert (undone.restored, undone.kept) == (["a", "b", "c"], ["d", "f"])
        assert read(folder) == {"a": "1", "b": "person", "c": "0", "d": "person", "e": "1"} | {
            "f": "person",
            "link": "1",
        }
        undone = history.undo(1)
        assert (undone.restored, undone.kept) == (["a", "e"], ["b"])
        run(1, a="x", b=None)
        (folder / "link").unlink()
        run(3, a="y", b="z")
        assert list(history.diff(1, only=["a"])) == ["--- a", "+++ a", "@@ -1 +1 @@", "-0", "+y"]
        assert history.undo(1).restored == ["a", "b"]
    assert read(folder) == {"a": "0", "b": "person", "c": "0", "d": "person", "f": "person"}


def write(folder: Path, **files: str | None) -> None:
    for name, text in files.items():
        if text is None:
            (folder / name).unlink()
        else:
            (folder / name).write_text(text)


def read(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_work_folder_that_cannot_be_copied_is_named(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.write(b"x" * 4096)
    history = FolderHistory(str(tmp_path), max_copied_bytes=1000)
    with history.open():
        assert history.begin() is None
    assert "1000 bytes" in history.reason


def test_a_run_after_which_the_folder_cannot_be_copied_is_taken_back(tmp_path: Path) -> None:
    """What was there before is restored. What is new stays, and the run says so."""
    folder = tmp_path / "folder"
    folder.mkdir()
    history = FolderHistory(str(folder))
    write(folder, lost="precious", changed="old", kept="x", edited="old")
    with history.open():
        before = history.begin()
        write(folder, lost=None, changed="new", edited="new", made="1")
        deep = folder / "/".join("x" * 70)
        deep.mkdir(parents=True)
        run = history.end(before, 0, exclude=None)
        assert "deep" in history.reason or "nested" in history.reason
        assert run is not None
        assert (run.is_complete, sorted(run.changes)) == (False, ["changed", "edited", "lost"])
        assert list(history.diff(0, only=["changed"])) == ["changed: changed, and no text"]
        write(folder, edited="by a person")
        undone = history.undo(0)
    assert (undone.restored, undone.kept) == (["changed", "lost"], ["edited"])
    (folder / "x").rename(tmp_path / "away")
    assert read(folder) == {
        "lost": "precious", "changed": "old", "kept": "x", "edited": "by a person", "made": "1"
    }  # fmt: skip


def test_a_diff_takes_bounded_time_and_has_no_forged_lines(tmp_path: Path) -> None:
    history = FolderHistory(str(tmp_path))
    numbers = [f"{n % 150}\n" for n in range(20_000)]
    long = [f"{n}\n" for n in range(20_000)]
    (tmp_path / "long").write_text("".join(long))
    (tmp_path / "repeated").write_text("".join(numbers))
    with history.open():
        before = history.begin()
        (tmp_path / "a\n+++ b").write_text("1\n")
        (tmp_path / "link").symlink_to("a\n+b")
        long[10_000:10_002] = ["x\n"]
        (tmp_path / "long").write_text("".join(long))
        (tmp_path / "repeated").write_text("".join(f"{n % 149}\n" for n in range(20_000)))
        history.end(before, 0, exclude=None)
        assert list(history.diff(0)) == [
            *("--- /dev/null", "+++ a\ufffd+++ b", "@@ -0,0 +1 @@", "+1"),
            *("--- /dev/null", "+++ link", "@@ -0,0 +1 @@", "+link to a\ufffd+b"),
            *("--- long", "+++ long", "@@ -9998,8 +9998,7 @@", " 9997", " 9998", " 9999"),
            *("-10000", "-10001", "+x", " 10002", " 10003", " 10004"),
            "repeated: changed, and too long to compare",
        ]
