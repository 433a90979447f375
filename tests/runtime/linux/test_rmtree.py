"""Removing what untrusted code has left in a folder."""

from __future__ import annotations

import os
from pathlib import Path

from cellblock.runtime.linux.rmtree import empty_folder


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
