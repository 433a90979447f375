"""Folders in each other far beyond the length of a path, which code makes by chdir."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from cellblock import Sandbox

pytestmark = [pytest.mark.depends_on_user, pytest.mark.usefixtures("needs_sandbox")]
_DEPTH = 3_000
_MAKE_DEEP = f"""
import os
os.mkdir("deep")
os.chdir("deep")
for _ in range({_DEPTH}):
    os.mkdir("d")
    os.chdir("d")
open("file", "w").close()
"""


async def test_they_are_removed_and_neither_downloaded_nor_uploaded(tmp_path: Path) -> None:
    target, work = tmp_path / "target", tmp_path / "work"
    async with Sandbox(work_dir=work) as box, Sandbox() as other:
        assert (await box.exec(["python3", "-c", _MAKE_DEEP])).exit_code == 0
        with pytest.raises(OSError, match="More than 250 folders") as caught:
            await box.files.download("deep", target)
        assert caught.value.errno == errno.ENAMETOOLONG
        shutil.rmtree(target)  # as any program can remove what has arrived
        with pytest.raises(OSError, match="More than 250 folders"):
            await other.files.upload(work / "deep", "deep")
        await other.files.remove("deep")
        await box.files.write("deep/d/d/file", "")
        await box.files.remove("deep")
        assert os.listdir(work) == []


async def test_folders_just_not_too_deep_are_copied(tmp_path: Path) -> None:
    names = "/".join(["d"] * 250)
    async with Sandbox() as box:
        await box.files.write(f"deep/{names}/file", "text")
        await box.files.download("deep", tmp_path / "deep")
        await box.files.upload(tmp_path / "deep", "back")
        assert await box.files.read_text(f"back/{names}/file") == "text"
    shutil.rmtree(tmp_path / "deep")
