"""Files that blocks asked for in vain, though they are in the caller's folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock.executors.workspace.missed_files import missed_files


@pytest.fixture(autouse=True)
def work_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with files and a work folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("data.csv", "my data.csv", "sub/x.txt", "Makefile", "coding/shared.csv"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
    Path("shared.csv").touch()
    return tmp_path / "coding"


def test_a_file_beside_the_work_folder_is_found(tmp_path: Path) -> None:
    messages = {
        "FileNotFoundError: [Errno 2] No such file or directory: 'data.csv'": "data.csv",
        "FileNotFoundError: [Errno 2] No such file or directory: 'my data.csv'": "my data.csv",
        "FileNotFoundError: sub/x.txt not found.": "sub/x.txt",
        "[Errno 2] No such file or directory: '../data.csv'": "data.csv",
        "[Errno 2] No such file or directory: '/workspace/data.csv'": "data.csv",
        "cat: data.csv: No such file or directory": "data.csv",
        "cat: Makefile: No such file or directory": "Makefile",
        "cat: my data.csv: No such file or directory": "my data.csv",
        "head: cannot open 'data.csv' for reading: No such file or directory": "data.csv",
        "/workspace/tmp.sh: 1: cannot open data.csv: No such file": "data.csv",
        "Error: ENOENT: no such file or directory, open 'data.csv'": "data.csv",
        "No such file or directory (os error 2): data.csv": "data.csv",
        'IO Error: No files found that match the pattern "data.csv"': "data.csv",
        "No such file or directory: 'sub'": "sub",
        f"No such file or directory: '{tmp_path}/data.csv'": "data.csv",
    }
    found = {text: missed_files(f"Traceback\n{text}\n", "coding") for text in messages}
    assert found == {text: [name] for text, name in messages.items()}


def test_other_files_are_not_named() -> None:
    names = ["nothing.csv", "shared.csv", "coding", ".", "/etc/passwd", "\0"]
    for text in (*(f"No such file or directory: '{name}'" for name in names), "read data.csv"):
        assert missed_files(text, "coding") == [], text
    # The caller's folder as the work folder misses nothing.
    assert missed_files("No such file or directory: 'data.csv'", ".") == []
